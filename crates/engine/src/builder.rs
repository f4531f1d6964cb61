//! Building an engine.
//!
//! An engine exists only after its store has answered.

use crate::archive::Archive;
use crate::background::write_probe;
use crate::background::{heartbeat, reconcile, sweep};
use crate::call::claim::GIVE_BACK_AT_ONCE_MAX;
use crate::call::engine::Engine;
use crate::node::Node;
use crate::node::cache::Cache;
use crate::node::clock::NodeClock;
use crate::node::outcome_sealing::OutcomeSealing;
use crate::node::reconcilers::{Reconcile, Reconcilers};
use crate::node::renewer::Renewer;
use crate::node::running::Running;
use crate::node::store_access::StoreAccess;
use crate::observe::{Event, Observer, Unobserved};
use crate::quota::{Keepers, Quotas, QuotasError};
use crate::runtime::clock::{Clock, SystemClock};
use crate::runtime::random::{Random, SystemRandom};
use crate::runtime::spawn::Spawn;
use crate::runtime::tasks::Tasks;
use crate::sealing::KeyRing;
use crate::secrets::{self, Configured, RefreshSettings};
use crate::settings::Settings;
use crate::time::{Heartbeat, TrustedTime};
use semel_core::id::CommandId;
use semel_core::store::{self, Counting, Kind, Store};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// How long a new engine waits for its store, in multiples of the timeout of a single call.
const TIMEOUTS_AT_START: u32 = 3;

/// Builds an [`Engine`].
#[must_use]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    spawn: Option<Arc<dyn Spawn>>,
    observer: Arc<dyn Observer>,
    name: Option<Arc<str>>,
    settings: Settings,
    reconcilers: Reconcilers,
    secret: Option<Vec<u8>>,
    rotate_to: Option<Vec<u8>>,
    refresh: RefreshSettings,
    sealing: Option<KeyRing>,
    quotas: Quotas,
    archive: Option<Arc<dyn Archive>>,
}

impl Engine {
    /// Builds an engine on `store`. Everything else has a default.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder::new(store)
    }
}

impl Builder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            spawn: None,
            observer: Arc::new(Unobserved),
            name: None,
            settings: Settings::default(),
            reconcilers: Reconcilers::default(),
            secret: None,
            rotate_to: None,
            refresh: RefreshSettings::default(),
            sealing: None,
            quotas: Quotas::default(),
            archive: None,
        }
    }

    /// Durations and limits.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The name of this node in the history of records. Random by default.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// The reconciler for unknown outcomes of an operation.
    pub fn reconciler(mut self, operation: impl Into<String>, reconcile: impl Reconcile) -> Self {
        self.reconcilers.register(operation.into(), Arc::new(reconcile));
        self
    }

    /// Finds the reconciler for an operation without a [fixed](Self::reconciler) one. Called for every probe, so the
    /// result can change while the engine runs.
    ///
    /// Return the same `Arc` for operations that share one [limit](crate::Probe::at_once_max) on concurrent probes.
    /// If every call returns a new `Arc`, the only limit is twice the [total](crate::Probe::at_once_total_max).
    pub fn reconcilers(
        mut self,
        directory: impl Fn(&str) -> Option<Arc<dyn Reconcile>> + Send + Sync + 'static,
    ) -> Self {
        self.reconcilers.set_directory(Box::new(directory));
        self
    }

    /// The hashing secret, at least 32 random bytes. By default, the store has its own secret, which all nodes use.
    ///
    /// A secret other than the store's is refused, because every key would be new under it.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// The secret to rotate to; see [`secrets::rotation`](crate::secrets::rotation).
    pub fn rotate_to(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.rotate_to = Some(secret.into());
        self
    }

    /// How this node keeps up with a rotation of the hashing secret.
    pub fn secret_refresh(mut self, refresh: RefreshSettings) -> Self {
        self.refresh = refresh;
        self
    }

    /// The keys that seal stored outcomes, unless an [intent](crate::Intent::sealed) says otherwise. Without keys,
    /// outcomes are stored unsealed.
    pub fn sealing(mut self, ring: KeyRing) -> Self {
        self.sealing = Some(ring);
        self
    }

    /// Limits on new keys and on records. None by default.
    pub fn quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// An archive for records before the sweeper deletes them or drops their outcomes. None by default.
    pub fn archive(mut self, archive: impl Archive) -> Self {
        self.archive = Some(Arc::new(archive));
        self
    }

    /// Another clock, random source or task spawner: for simulations, and for runtimes other than the current one.
    pub fn on(mut self, clock: Arc<dyn Clock>, random: Arc<dyn Random>, spawn: Arc<dyn Spawn>) -> Self {
        self.clock = clock;
        self.random = random;
        self.spawn = Some(spawn);
        self
    }

    /// Connects to the store, and starts the sweeper and the reconciler.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless another spawner was given.
    pub async fn build(self) -> Result<Engine, BuildError> {
        let quota = Keepers::new(&self.quotas).map_err(BuildError::Quotas)?;
        if self.store.capabilities().counts != Counting::Exact
            && let Some(cap) = self.quotas.counted_by_the_store()
        {
            return Err(BuildError::Quotas(QuotasError::NotCounted(cap)));
        }
        // The proof that no node claims under a replaced secret depends on this.
        if self.refresh.in_flight <= self.settings.store_timeout {
            return Err(BuildError::Secrets(secrets::Error::RefreshSettings));
        }
        let spawn = self.spawn.unwrap_or_else(|| Arc::new(tokio::runtime::Handle::current()));
        let timeout = TIMEOUTS_AT_START * self.settings.store_timeout;
        let name = self.name.unwrap_or_else(|| format!("node-{:08x}", self.random.bits() >> 96).into());
        let configured = Configured { secret: self.secret.as_deref(), rotate_to: self.rotate_to.as_deref() };
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let secrets = secrets::open(store, configured, clock, &*self.random, &name, self.refresh);
        let secrets = bounded(&*self.clock, timeout, secrets).await?.map_err(BuildError::Secrets)?;
        // Before the time is read: what others write meanwhile would look like a date in the future.
        let run = format!("{name} {:016x}", self.random.bits() >> 64);
        let read = Heartbeat::read(&*self.store, run, self.clock.uptime());
        let (heartbeat, remembered) =
            bounded(&*self.clock, timeout, read).await?.map_err(BuildError::Store)?;
        let asked = self.clock.uptime();
        let first = self.store.get(CommandId::from_bytes([0; 32]));
        let shown = bounded(&*self.clock, timeout, first).await?.map_err(BuildError::Store)?.now;
        let received = self.clock.uptime();
        let boot = self.clock.boot();
        let clock = self.settings.clock.clone();
        let (trusted, change) =
            TrustedTime::start(clock, boot.as_deref(), remembered, (shown, asked, received));
        let cache = Cache::new(self.settings.cache_bytes_max);
        let renewer = Renewer::begin(Arc::clone(&self.clock), &*spawn);
        let clock = Arc::new(NodeClock { machine: self.clock, trusted, heartbeat });
        let settings = Arc::new(self.settings);
        let store = StoreAccess::new(
            self.store,
            Arc::clone(&clock),
            Arc::clone(&settings),
            Arc::clone(&self.observer),
            Arc::clone(&secrets),
        );
        let (random, observer) = (Arc::clone(&self.random), Arc::clone(&self.observer));
        let sealing = OutcomeSealing::new(self.sealing, random, observer);
        let node = Arc::new(Node {
            store,
            clock,
            random: self.random,
            spawn,
            observer: self.observer,
            name,
            settings,
            running: Arc::new(Running::default()),
            renewer,
            giving_back: Semaphore::new(GIVE_BACK_AT_ONCE_MAX),
            cache,
            tasks: Tasks::new(),
            reconcilers: self.reconcilers,
            secrets: Arc::clone(&secrets),
            sealing,
            quota,
            archive: self.archive,
        });
        let alarmed = Arc::downgrade(&node);
        node.spawn.spawn(secrets.tend(move |refreshed| {
            if let Some(node) = alarmed.upgrade() {
                match refreshed {
                    Ok(()) => node.observe(&Event::SecretsCurrent),
                    Err(secrets::Error::Store(lost)) if lost.kind() == Kind::DataLost => {
                        node.store.note_loss(lost);
                    }
                    Err(error @ secrets::Error::WentBack) => {
                        let context = "reading the state of the hashing secret";
                        node.store.note_loss(
                            &store::Error::new(Kind::DataLost, context).because(error.to_string()),
                        );
                    }
                    Err(error) => node.observe(&Event::SecretsBehind { error }),
                }
            }
        }));
        if let Some(change) = change {
            node.store.clock_changed(change);
        }
        // If the caller drops this, no task is left: those that start before the last wait would go on.
        let is_accepted = write_probe::first(&node.store).await;
        heartbeat::begin(&node).await;
        write_probe::begin(&node, is_accepted);
        sweep::begin(&node);
        reconcile::begin(&node);
        Ok(Engine::of(node))
    }
}

/// Waits for `answer`, at most for `timeout`.
async fn bounded<T>(
    clock: &dyn Clock,
    timeout: Duration,
    answer: impl Future<Output = T>,
) -> Result<T, BuildError> {
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = clock.sleep(timeout) => {
            let context = "waiting for the store's first answers";
            Err(BuildError::Store(store::Error::new(Kind::Unavailable, context)))
        }
    }
}

/// Why the engine could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The store did not answer.
    Store(store::Error),
    /// The quotas are invalid.
    Quotas(QuotasError),
    /// The hashing secret is not available.
    Secrets(secrets::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store did not answer: {error}"),
            Self::Quotas(error) => write!(f, "the quotas are invalid: {error}"),
            Self::Secrets(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Quotas(error) => Some(error),
            Self::Secrets(error) => Some(error),
        }
    }
}
