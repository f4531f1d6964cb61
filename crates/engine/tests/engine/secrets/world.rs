//! A store, its clock, and nodes on it.

use semel::core::fingerprint::Fingerprint;
use semel::core::key::Key;
use semel::core::policy::{Class, Policy};
use semel::core::scope::{Identity, Operation, Scope};
use semel::core::store::{self, Store};
use semel::core::time::Time;
use semel::memory;
use semel::secrets::{self, Bounded, Commands, Configured, Error, RefreshSettings, Secrets, View};
use semel::{Clock, Random, Sleep};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A clock that stands still until a test or a sleep advances it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Hands(Arc<Mutex<Duration>>);

impl Hands {
    pub(crate) fn turn(&self, span: Duration) {
        *self.0.lock().expect("not poisoned") += span;
    }
}

impl store::Clock for Hands {
    fn now(&self) -> Time {
        Time::from_millis(1_000_000) + self.uptime()
    }
}

impl Clock for Hands {
    fn uptime(&self) -> Duration {
        *self.0.lock().expect("not poisoned")
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.turn(span);
        Box::pin(std::future::ready(()))
    }
}

/// Different bits on every draw, the same on every run. Clones share the sequence.
#[derive(Clone)]
pub(crate) struct Dice(Arc<AtomicU64>);

impl Dice {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn next(&self) -> u64 {
        let mut bits = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }
}

impl Random for Dice {
    fn bits(&self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

pub(crate) const REFRESH: RefreshSettings = RefreshSettings {
    refresh_every: Duration::from_secs(10),
    good_for: Duration::from_secs(30),
    in_flight: Duration::from_mins(1),
};

pub(crate) const OLD: &[u8] = &[0x01; 32];
pub(crate) const NEW: &[u8] = &[0x02; 32];

pub(crate) struct World {
    pub(crate) clock: Hands,
    pub(crate) dice: Dice,
    pub(crate) store: Arc<dyn Store>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::seeded(1)
    }

    pub(crate) fn seeded(seed: u64) -> Self {
        let clock = Hands::default();
        let store = Arc::new(memory::Store::with_clock(Arc::new(clock.clone())));
        Self { clock, dice: Dice::seeded(seed), store }
    }

    /// A node with this name, without a configured secret.
    pub(crate) async fn node(&self, name: &str) -> Arc<Secrets> {
        self.open(name, Configured::default()).await.expect("opened")
    }

    pub(crate) async fn open(&self, name: &str, configured: Configured<'_>) -> Result<Arc<Secrets>, Error> {
        let (store, clock) = (Arc::clone(&self.store), Arc::new(self.clock.clone()));
        secrets::open(store, configured, clock, &self.dice, name, REFRESH).await
    }

    /// The store, as operators call it.
    pub(crate) fn bounded(&self) -> Bounded<'_> {
        bounded(&*self.store)
    }

    pub(crate) async fn setting(&self, name: &str) -> Option<String> {
        let settings = self.store.settings().await.expect("read");
        let found = settings.into_iter().find(|(found, _)| found == name);
        found.map(|(_, value)| String::from_utf8(value.to_vec()).expect("text"))
    }

    /// Lets time pass while `nodes` are alive.
    pub(crate) async fn pass(&self, span: Duration, nodes: &[&Secrets]) {
        let turns = span.as_secs().div_ceil(REFRESH.refresh_every.as_secs());
        for _ in 0..turns {
            self.clock.turn(REFRESH.refresh_every);
            for node in nodes {
                node.refresh().await.expect("refreshed");
            }
        }
    }

    /// Lets enough time pass for `nodes` to confirm everything.
    pub(crate) async fn settle(&self, nodes: &[&Secrets]) {
        self.pass(REFRESH.lapse() + REFRESH.refresh_every * 2, nodes).await;
    }
}

/// A store without timeouts: this clock stands still.
pub(crate) fn bounded(store: &dyn Store) -> Bounded<'_> {
    struct Still;

    impl store::Clock for Still {
        fn now(&self) -> Time {
            Time::from_millis(0)
        }
    }

    impl Clock for Still {
        fn uptime(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) -> Sleep {
            Box::pin(std::future::pending())
        }
    }

    Bounded::new(store, &Still, Duration::from_secs(10))
}

/// A payload.
pub(crate) static PAYLOAD: Fingerprint = Fingerprint::from_bytes([5; 32]);

/// The payment with this number, with the IDs of a view.
pub(crate) fn payment(view: &View, number: u64) -> Commands<'static> {
    let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/payments"));
    let key = Key::from_source(&format!("payment-{number}")).expect("a valid key");
    let minute = Duration::from_mins(1);
    let policy = Policy::new(Class::External)
        .with(|policy| {
            policy.ttl = minute;
            policy.tombstone = minute;
            policy.lease = Duration::from_secs(30);
            policy.work_deadline = Duration::from_secs(5);
        })
        .expect("valid");
    view.commands(&scope, &key, policy.into(), &PAYLOAD).expect("it can be fingerprinted")
}

/// How long a payment is remembered.
pub(crate) const REMEMBERED: Duration = Duration::from_mins(2);

/// Runs a future that never waits for anything outside itself.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(future)
}

/// Whether both nodes use the same secret.
pub(crate) fn names_alike(one: &Secrets, other: &Secrets) -> bool {
    let id = |node: &Secrets| node.view().expect("fresh").current.secret.id();
    id(one) == id(other)
}

/// [`secrets::locate`] for a node that trusts the store's clock.
pub(crate) async fn locate<'c, 'a>(
    store: &dyn Store,
    view: &View,
    clock: &dyn Clock,
    commands: &'c Commands<'a>,
) -> Result<secrets::Located<'c, 'a>, Error> {
    secrets::locate(store, view, clock, &|reading, _| reading.now.into(), commands).await
}
