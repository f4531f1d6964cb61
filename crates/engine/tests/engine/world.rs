//! An engine on a memory store and a clock controlled by the tests, with intents to run.

use semel::core::key::Key;
use semel::core::policy::{Class, Policy};
use semel::core::record::Record;
use semel::core::scope::{Identity, Operation, Scope};
use semel::core::store::Store;
use semel::core::time::Time;
use semel::payload::Json;
use semel::{Attempt, Builder, Engine, Event, Failed, Intent, Observer, Settings, SystemRandom, memory};
use semel_testkit::FakeClock;
use semel_testkit::faults::{Call, Fault, Faulty};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The sweep interval of the engines under test.
pub(crate) const SWEEP: Duration = secs(1);

type Fate = Box<dyn Fn(&Call) -> Fault + Send + Sync>;

/// A store behind a faulty network, a clock, and any number of engines.
pub(crate) struct World {
    pub(crate) clock: FakeClock,
    pub(crate) store: Arc<Faulty>,
    fate: Arc<Mutex<Fate>>,
    seen: Arc<Mutex<Vec<String>>>,
}

struct Seen(Arc<Mutex<Vec<String>>>);

impl Observer for Seen {
    fn observe(&self, event: &Event<'_>) {
        if !matches!(event, Event::Asked { .. } | Event::Swept(_)) {
            self.0.lock().expect("no panic").push(format!("{event:?}"));
        }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = FakeClock::at(Time::from_millis(1_800_000_000_000));
        let fate: Arc<Mutex<Fate>> = Arc::new(Mutex::new(Box::new(|_: &Call| Fault::Pass)));
        let decides = Arc::clone(&fate);
        let plan = move |call: &Call| decides.lock().expect("no panic")(call);
        let inner = Arc::new(memory::Store::with_clock(Arc::new(clock.clone())));
        Self { clock, store: Arc::new(Faulty::new(inner, plan)), fate, seen: Arc::default() }
    }

    /// Sets the fault of every call from now on.
    pub(crate) fn fate(&self, fate: impl Fn(&Call) -> Fault + Send + Sync + 'static) {
        *self.fate.lock().expect("no panic") = Box::new(fate);
    }

    pub(crate) async fn engine(&self) -> Engine {
        self.engine_with(|builder| builder).await
    }

    pub(crate) async fn engine_with(&self, with: impl FnOnce(Builder) -> Builder) -> Engine {
        self.engine_on(self.store.clone(), with).await
    }

    /// An engine that reaches the store through `store`.
    pub(crate) async fn engine_on(
        &self,
        store: Arc<dyn Store>,
        with: impl FnOnce(Builder) -> Builder,
    ) -> Engine {
        // One clock for all nodes: leases end without skew.
        let mut settings = Settings::default();
        settings.clock.skew = Duration::ZERO;
        // Requests retry these calls by themselves; here a slow store is slow for all.
        settings.request_timeout = settings.store_timeout;
        let builder = Engine::builder(store).settings(settings).observer(Seen(Arc::clone(&self.seen))).on(
            Arc::new(self.clock.clone()),
            Arc::new(SystemRandom),
            Arc::new(tokio::runtime::Handle::current()),
        );
        with(builder).build().await.expect("the store answers")
    }

    /// Waits until every task is idle.
    pub(crate) async fn rest(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets `span` pass, and wakes every sleeper in time.
    pub(crate) async fn pass(&self, span: Duration) {
        let mut left = span;
        loop {
            self.rest().await;
            if left.is_zero() {
                return;
            }
            let step = self.clock.next_wake().unwrap_or(left).max(Duration::from_millis(1)).min(left);
            self.clock.advance(step);
            left = left.saturating_sub(step);
        }
    }

    /// Lets a long time pass in one step.
    pub(crate) async fn skip(&self, span: Duration) {
        self.rest().await;
        self.clock.advance(span);
        self.pass(2 * SWEEP).await;
    }

    /// Whether there was an event whose text contains `text`.
    pub(crate) fn saw(&self, text: &str) -> bool {
        self.seen.lock().expect("no panic").iter().any(|event| event.contains(text))
    }

    /// How many events there were whose text contains `text`.
    pub(crate) fn times_seen(&self, text: &str) -> usize {
        self.seen.lock().expect("no panic").iter().filter(|event| event.contains(text)).count()
    }

    /// The only record in the store.
    pub(crate) async fn record(&self) -> Record {
        self.fate(|_| Fault::Pass);
        let page = self.store.page(&semel::core::store::Filter::default(), None, 10).await.expect("a page");
        assert_eq!(page.items.len(), 1, "{page:?}");
        page.items[0].record().expect("it can be read").clone()
    }
}

pub(crate) async fn engine() -> Engine {
    Engine::builder(Arc::new(memory::Store::new())).build().await.expect("the store answers")
}

pub(crate) fn intent(key: &str, payload: &str) -> Intent {
    intent_under(Policy::new(Class::External), key, payload)
}

pub(crate) fn intent_under(policy: Policy, key: &str, payload: &str) -> Intent {
    let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
    let key = Key::from_source(key).expect("a good key");
    Intent::new(scope, key, policy, Json::of(payload).expect("a string is JSON"))
}

/// Work that charges the number of its attempt.
pub(crate) async fn charge(attempt: Attempt) -> Result<u32, Failed> {
    Ok(attempt.number())
}

/// Work that must not run.
pub(crate) async fn never(attempt: Attempt) -> Result<u32, Failed> {
    panic!("attempt {} ran", attempt.number())
}

/// Work that never ends.
pub(crate) async fn forever(_: Attempt) -> Result<u32, Failed> {
    std::future::pending().await
}
