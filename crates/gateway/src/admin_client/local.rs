//! The admin API in this process, on a store that it opens. The engine neither sweeps nor probes, and nothing is
//! created in the store.

use crate::config::{Hashing, Next};
use crate::stores::{OpenError, Url};
use crate::unsealed::{any_sealed, contains_sealed};
use http::Method;
use semel::core::store::{Clock as _, Error, Store};
use semel::sealing::KeyRing;
use semel::{BuildError, Engine, Settings, Sweep, SystemClock, secrets};
use semel_admin::client::{AskError, InProcess, Reply, holder_name};
use semel_admin::{OptionsError, ResponseLimits};
use semel_http::Routes;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error as ThisError;

/// How long signing off from the store may take.
const SIGN_OFF_MAX: Duration = Duration::from_secs(5);

/// How many stored responses are checked before one is stored unsealed.
const CHECKED_MAX: usize = 5_000;

/// What gateways on a store are configured with, as far as it is known.
#[derive(Debug, Clone, Default)]
pub struct Configured {
    /// The keys that seal stored responses.
    pub sealing: Option<KeyRing>,
    /// The secret that hashes keys and callers.
    pub hashing: Hashing,
    /// The operations and the upstream's longest head. `None` if no file was given.
    pub routes: Option<(Routes, u32)>,
}

impl Configured {
    /// Whether a configuration file was given.
    const fn is_known(&self) -> bool {
        self.routes.is_some()
    }
}

/// Why an operator cannot use a store. Nothing was changed.
#[derive(Debug, ThisError)]
pub enum LocalError {
    /// The store ends with its process.
    #[error("{0} exists only in the process that opened it; use its admin address: --admin URL")]
    InProcess(Url),
    /// The store has no tables of Semel.
    #[error("{0} contains no records of Semel; nothing was changed")]
    NoRecords(Url),
    /// The first user of a store decides how keys are hashed: that must be a gateway.
    #[error("{0} contains no records: no gateway has used it yet; nothing was changed")]
    NeverUsed(Url),
    /// Its gateways are configured with this hashing secret.
    #[error(
        "{url} cannot be used without the hashing secret {id}, which its gateways are configured with: {}",
        if *is_configured {
            "the file given with --config has another one, or none: name the file of a gateway on this store"
        } else {
            "name their file, --config FILE"
        }
    )]
    NoSecret {
        /// The store.
        url: Url,
        /// The secret's ID.
        id: String,
        /// Whether a configuration file was given.
        is_configured: bool,
    },
    /// It cannot be opened.
    #[error(transparent)]
    Unopened(#[from] OpenError),
    /// It cannot be read.
    #[error("{0} cannot be used: {1}")]
    Unreadable(Url, #[source] Error),
    /// No engine can be built on it.
    #[error("{0} cannot be used: {1}")]
    Engine(Url, #[source] BuildError),
    /// The operator cannot be admitted.
    #[error("{0} cannot be used: {1}")]
    Options(Url, #[source] OptionsError),
}

/// Why a response is not stored beside sealed ones.
#[derive(Debug, ThisError)]
pub enum SealingError {
    /// The store cannot be read.
    #[error("nothing was changed: {0}")]
    Unreadable(#[from] Error),
    /// The keys that were given open none of the checked responses.
    #[error(
        "none of the sealed responses in the store can be opened with the keys of the file given with --config: its gateways \
         have other keys, and no retry could get this response. Nothing was changed. Give --config with the file of a gateway on \
         this store, or use the gateway's admin address (--admin URL)"
    )]
    OtherKeys,
    /// No keys were given.
    #[error(
        "the store contains sealed responses, and {}: this one would be stored unsealed. Nothing was changed. Give --config with \
         the file of a gateway that seals on this store, or use the gateway's admin address (--admin URL)",
        if *is_configured { "the file given with --config has no key under [sealing]" } else { "no keys were given" }
    )]
    NoKeys {
        /// Whether a configuration file was given.
        is_configured: bool,
    },
}

/// A store that was opened by an operator.
pub struct Local {
    store: Arc<dyn Store>,
    engine: Engine,
    admin: InProcess,
    /// The keys that were given.
    ring: Option<KeyRing>,
    is_configured: bool,
}

impl Local {
    /// Opens the store, which must exist and must have been used by a gateway. `who` is recorded in the history.
    /// `configured` is what gateways on it are configured with; `with_bodies` shows stored responses.
    pub async fn open(
        url: &Url,
        configured: Configured,
        who: &str,
        with_bodies: bool,
    ) -> Result<Self, LocalError> {
        if url.backend().is_in_process() {
            return Err(LocalError::InProcess(url.clone()));
        }
        let unreadable = |error| LocalError::Unreadable(url.clone(), error);
        let look = url.inspect().await.map_err(unreadable)?;
        let schema = look.schema().await.map_err(unreadable)?;
        if schema.have < schema.wanted.min(1) {
            return Err(LocalError::NoRecords(url.clone()));
        }
        let settings = look.settings().await.map_err(unreadable)?;
        drop(look);
        if settings.iter().all(|(name, _)| name != "secrets") {
            return Err(LocalError::NeverUsed(url.clone()));
        }
        let store = url.open().await?;
        // Expired records are archived and removed by nodes that are configured for it.
        let settings = Settings {
            sweep: Sweep { every: Duration::ZERO, ..Sweep::default() },
            cache_bytes_max: 0,
            // No client waits for this node.
            request_timeout: Settings::default().store_timeout,
            ..Settings::default()
        };
        let mut builder = Engine::builder(Arc::clone(&store)).settings(settings).name(holder_name(who));
        let (ring, is_configured) = (configured.sealing.clone(), configured.is_known());
        let Configured { sealing, hashing, routes } = configured;
        if let Some(ring) = sealing {
            builder = builder.sealing(ring);
        }
        if let Some(secret) = hashing.secret {
            builder = builder.secret(secret);
        }
        if let Next::Secret(next) = hashing.next {
            builder = builder.rotate_to(next);
        }
        let engine = builder.build().await.map_err(|error| match error {
            BuildError::Secrets(secrets::Error::Missing(id)) => {
                LocalError::NoSecret { url: url.clone(), id, is_configured }
            }
            error => LocalError::Engine(url.clone(), error),
        })?;
        let response_limits = Arc::new(move |operation: &str| match &routes {
            Some((routes, head_bytes_max)) => ResponseLimits::of(routes, operation, *head_bytes_max),
            None => ResponseLimits::default(),
        });
        let admin = InProcess::new(engine.clone(), who, with_bodies, response_limits);
        let admin = admin.map_err(|error| LocalError::Options(url.clone(), error))?;
        Ok(Self { store, engine, admin, ring, is_configured })
    }

    /// Whether a configuration file was given.
    pub const fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Refuses to store a response beside sealed ones, unsealed or with a key that no gateway on the store has, as far as a
    /// few thousand of them show.
    pub async fn check_sealing(&self) -> Result<(), SealingError> {
        let (store, now) = (&*self.store, SystemClock.now());
        if !contains_sealed(store, now, CHECKED_MAX).await? {
            return Ok(());
        }
        if let Some(ring) = &self.ring {
            let opens =
                any_sealed(store, now, CHECKED_MAX, |id, outcome| ring.open(id, outcome).is_ok()).await;
            return if opens? { Ok(()) } else { Err(SealingError::OtherKeys) };
        }
        Err(SealingError::NoKeys { is_configured: self.is_configured })
    }

    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, AskError> {
        self.admin.ask(method, path, body).await
    }

    /// Signs off from the store, and closes it.
    pub async fn close(self) {
        self.engine.shutdown(SIGN_OFF_MAX).await;
        drop(self.engine);
        self.store.close().await;
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}
