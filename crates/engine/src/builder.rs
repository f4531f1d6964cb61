//! How an engine is built.
//!
//! Contents: what can be handed in, and what is taken otherwise. Never here: an engine that has not spoken with its
//! store.

use crate::archive::Archive;
use crate::cache::Cache;
use crate::claim::GIVE_BACK_AT_ONCE_MAX;
use crate::clock::{Clock, SystemClock};
use crate::engine::Engine;
use crate::node::Node;
use crate::observe::{Event, Observer, Unobserved};
use crate::quota::{Keepers, Quotas, QuotasError};
use crate::random::{Random, SystemRandom};
use crate::reconcile::{Reconcile, Reconcilers};
use crate::renewer::Renewer;
use crate::running::Running;
use crate::sealing::KeyRing;
use crate::secrets::{self, Configured, Terms};
use crate::settings::Settings;
use crate::spawn::Spawn;
use crate::tasks::Tasks;
use crate::time::{self, Heartbeat, TrustedTime};
use crate::writable::WriteWatch;
use crate::{reconcile, sweep};
use semel_core::id::CommandId;
use semel_core::store::{self, Counting, Store};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// How many times as long as for a single call a new engine waits for its store.
const PATIENCE: u32 = 3;

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
    terms: Terms,
    sealing: Option<KeyRing>,
    quotas: Quotas,
    archive: Option<Arc<dyn Archive>>,
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
            terms: Terms::default(),
            sealing: None,
            quotas: Quotas::default(),
            archive: None,
        }
    }

    /// Spans and bounds other than the default.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The name of this node in the history of what it writes. Drawn at random otherwise.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Who watches.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// Who is asked what became of an operation's effect, where nobody can tell.
    pub fn reconciler(mut self, operation: impl Into<String>, reconcile: impl Reconcile) -> Self {
        self.reconcilers.register(operation.into(), Arc::new(reconcile));
        self
    }

    /// Where to look whom to ask about an operation that nobody was [named](Self::reconciler) for. It is looked into
    /// anew for each question, so that those who stand there can change while the engine runs.
    ///
    /// Hand out the same `Arc` for whatever is to share one [bound](crate::Probe::at_once_max) on the questions under
    /// way: two are distinguished by it. If each question gets a new one, only twice the
    /// [total](crate::Probe::at_once_total_max) bounds them.
    pub fn reconcilers(
        mut self,
        directory: impl Fn(&str) -> Option<Arc<dyn Reconcile>> + Send + Sync + 'static,
    ) -> Self {
        self.reconcilers.look_into(Box::new(directory));
        self
    }

    /// The hashing secret, at least 32 random bytes. Without it the store has one of its own, which every node uses.
    ///
    /// A secret other than the store's is refused: under another secret every key would be new.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// The secret that the store's is being replaced with; see [`secrets::rotation`](crate::secrets::rotation).
    pub fn rotate_to(mut self, secret: impl Into<Vec<u8>>) -> Self {
        self.rotate_to = Some(secret.into());
        self
    }

    /// How this node keeps up with a change of the hashing secret.
    pub fn secret_terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// The keys that stored outcomes are sealed with, but for those of [intents](crate::Intent::sealed) that say
    /// otherwise. Stored as they are without keys.
    pub fn sealing(mut self, ring: KeyRing) -> Self {
        self.sealing = Some(ring);
        self
    }

    /// Limits on new keys and on records. None otherwise.
    pub fn quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = quotas;
        self
    }

    /// Where records are kept before the sweeper deletes them, or drops their outcomes. Nowhere otherwise.
    pub fn archive(mut self, archive: impl Archive) -> Self {
        self.archive = Some(Arc::new(archive));
        self
    }

    /// Another clock, randomness or place for tasks to run: for simulations, and runtimes other than the current.
    pub fn on(mut self, clock: Arc<dyn Clock>, random: Arc<dyn Random>, spawn: Arc<dyn Spawn>) -> Self {
        self.clock = clock;
        self.random = random;
        self.spawn = Some(spawn);
        self
    }

    /// Speaks with the store, and begins to sweep and to reconcile.
    ///
    /// # Panics
    /// Outside a tokio runtime, unless another place for tasks was handed in.
    pub async fn build(self) -> Result<Engine, BuildError> {
        let quota = Keepers::new(&self.quotas).map_err(BuildError::Quotas)?;
        if self.store.capabilities().counts != Counting::Exact
            && let Some(cap) = self.quotas.counted_by_the_store()
        {
            return Err(BuildError::Quotas(QuotasError::NotCounted(cap)));
        }
        // The argument that no node claims under a secret that was replaced rests on this.
        if self.terms.in_flight <= self.settings.store_timeout {
            return Err(BuildError::Secrets(secrets::Error::Terms));
        }
        let spawn = self.spawn.unwrap_or_else(|| Arc::new(tokio::runtime::Handle::current()));
        let patience = PATIENCE * self.settings.store_timeout;
        let name = self.name.unwrap_or_else(|| format!("node-{:08x}", self.random.bits() >> 96).into());
        let configured = Configured { secret: self.secret.as_deref(), rotate_to: self.rotate_to.as_deref() };
        let (store, clock) = (Arc::clone(&self.store), Arc::clone(&self.clock));
        let secrets = secrets::open(store, configured, clock, &*self.random, &name, self.terms);
        let secrets = bounded(&*self.clock, patience, secrets).await?.map_err(BuildError::Secrets)?;
        // Before the time is asked for: what others write meanwhile would look like a time that has not come.
        let run = format!("{name} {:016x}", self.random.bits() >> 64);
        let read = Heartbeat::read(&*self.store, run, self.clock.uptime());
        let (heartbeat, remembered) =
            bounded(&*self.clock, patience, read).await?.map_err(BuildError::Store)?;
        let asked = self.clock.uptime();
        let first = self.store.get(CommandId::from_bytes([0; 32]));
        let told = bounded(&*self.clock, patience, first).await?.map_err(BuildError::Store)?.now;
        let received = self.clock.uptime();
        let boot = self.clock.boot();
        let clock = self.settings.clock.clone();
        let (time, change) = TrustedTime::start(clock, boot.as_deref(), remembered, (told, asked, received));
        let cache = Cache::new(self.settings.cache_bytes_max);
        let renewer = Renewer::begin(Arc::clone(&self.clock), &*spawn);
        let node = Arc::new(Node {
            store: self.store,
            clock: self.clock,
            random: self.random,
            spawn,
            observer: self.observer,
            name,
            settings: self.settings,
            time,
            heartbeat,
            writes: WriteWatch::default(),
            store_id: OnceCell::new(),
            look_for_future_dates: AtomicBool::new(true),
            running: Arc::new(Running::default()),
            renewer,
            giving_back: Semaphore::new(GIVE_BACK_AT_ONCE_MAX),
            cache,
            tasks: Tasks::new(),
            reconcilers: self.reconcilers,
            secrets: Arc::clone(&secrets),
            sealing: self.sealing,
            quota,
            archive: self.archive,
        });
        let alarmed = Arc::downgrade(&node);
        node.spawn.spawn(secrets.tend(move |error| {
            if let Some(node) = alarmed.upgrade() {
                node.observe(&Event::SecretsBehind { error });
            }
        }));
        if let Some(change) = change {
            node.clock_changed(change);
        }
        time::begin(&node).await;
        sweep::begin(&node);
        reconcile::begin(&node);
        Ok(Engine::of(node))
    }
}

/// What comes of `answer`, unless the store takes longer than `patience`.
async fn bounded<T>(
    clock: &dyn Clock,
    patience: Duration,
    answer: impl Future<Output = T>,
) -> Result<T, BuildError> {
    tokio::select! {
        biased;
        answer = answer => Ok(answer),
        () = clock.sleep(patience) => {
            let context = "waiting for the store's first answers";
            Err(BuildError::Store(store::Error::new(store::Kind::Unavailable, context)))
        }
    }
}

/// Why there is no engine.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The store did not answer.
    Store(store::Error),
    /// The quotas make no sense.
    Quotas(QuotasError),
    /// The hashing secret is not to be had.
    Secrets(secrets::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "the store did not answer: {error}"),
            Self::Quotas(error) => write!(f, "the quotas make no sense: {error}"),
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
