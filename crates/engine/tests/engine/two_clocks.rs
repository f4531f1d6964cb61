//! Nodes on machines with different clocks: the one that came later gives way, and stays untrusted.

use super::world::{World, charge, intent, intent_under, never, secs};
use semel::core::id::{CommandId, OperationId};
use semel::core::policy::{AfterExpiry, Class, Policy};
use semel::core::record::{Record, StateName};
use semel::core::store::{
    Change, Clock as _, Count, Counted, Cursor, Delegate, Filter, Item, Page, Pending, Reading, Store,
    Written,
};
use semel::core::time::Time;
use semel::time::{ClockStatus, DistrustReason};
use semel::{
    Builder, Claimed, Clock, Engine, Failed, RunError, RunErrorReason, Settings, Sleep, SystemRandom,
};
use semel_testkit::FakeClock;
use semel_testkit::faults::Faulty;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAY: Duration = secs(24 * 3600);
const SETTLE: Duration = secs(120);
/// Two and a half heartbeats.
const WATCH: Duration = secs(25);
/// Until a live node has written its time twice.
const SEEN_TWICE: Duration = secs(22);

/// A machine of its own: its clock is ahead, and its uptime belongs to no other.
#[derive(Clone)]
struct Machine {
    clock: FakeClock,
    store: Arc<Faulty>,
    ahead: Arc<Mutex<Duration>>,
}

impl Machine {
    fn new(world: &World, ahead: Duration) -> Self {
        let (clock, store) = (world.clock.clone(), Arc::clone(&world.store));
        Self { clock, store, ahead: Arc::new(Mutex::new(ahead)) }
    }

    fn set_ahead(&self, ahead: Duration) {
        *self.ahead.lock().expect("no panic") = ahead;
    }

    async fn node(&self, world: &World) -> Engine {
        let (clock, runtime) = (Arc::new(self.clone()), tokio::runtime::Handle::current());
        let on = |builder: Builder| {
            builder.settings(Settings::default()).on(clock, Arc::new(SystemRandom), Arc::new(runtime))
        };
        world.engine_on(Arc::new(self.clone()), on).await
    }

    fn shifted<'a, T: Send + 'a>(
        &self,
        answer: Pending<'a, T>,
        time: impl FnOnce(&mut T) -> &mut Time + Send + 'a,
    ) -> Pending<'a, T> {
        let ahead = *self.ahead.lock().expect("no panic");
        Box::pin(async move {
            let mut answer = answer.await?;
            let shown = time(&mut answer);
            *shown = *shown + ahead;
            Ok(answer)
        })
    }
}

impl semel::core::store::Clock for Machine {
    fn now(&self) -> Time {
        self.clock.now() + *self.ahead.lock().expect("no panic")
    }
}

impl Clock for Machine {
    fn uptime(&self) -> Duration {
        self.clock.uptime()
    }

    fn sleep(&self, span: Duration) -> Sleep {
        self.clock.sleep(span)
    }
}

impl Delegate for Machine {
    fn inner(&self) -> &dyn Store {
        &*self.store
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        self.shifted(self.store.write(id, change), |written| match written {
            Written::Done { now } => now,
            Written::Refused(reading) => &mut reading.now,
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        self.shifted(self.store.get(id), |reading| &mut reading.now)
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.shifted(self.store.find(operation_id), |(now, _)| now)
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.shifted(self.store.page(filter, after, limit), |page| &mut page.now)
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.shifted(self.store.due(after, limit), |page| &mut page.now)
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.shifted(self.store.count(what, at_most), |counted| &mut counted.now)
    }
}

fn as_new(key: &str) -> semel::Intent {
    let policy = Policy::new(Class::External).with(|policy| policy.after_expiry = AfterExpiry::RunAsNew);
    intent_under(policy.expect("valid"), key, "5")
}

async fn is_refused(engine: &Engine, intent: semel::Intent) -> bool {
    matches!(engine.run(intent, never).await, Err(RunError { reason: RunErrorReason::ClockNotTrusted, .. }))
}

fn has_given_way(engine: &Engine) -> bool {
    matches!(engine.clock_status(), ClockStatus::Untrusted(DistrustReason::Contradicted(_)))
}

/// The latest time in the store.
async fn mark(world: &World) -> Time {
    let settings = world.store.settings().await.expect("settings");
    let (_, mark) = settings.iter().find(|(name, _)| name == "clock").expect("a mark");
    let mark: serde_json::Value = serde_json::from_slice(mark).expect("JSON");
    Time::from_millis(mark["at_ms"].as_u64().expect("a number"))
}

#[tokio::test]
async fn a_newcomer_with_another_time_never_takes_over_by_itself() {
    let world = World::new();
    let (right, wrong) = (Machine::new(&world, secs(0)), Machine::new(&world, 6 * DAY));
    let live = right.node(&world).await;
    live.run(as_new("k"), charge).await.expect("a value");
    world.pass(SETTLE).await;
    let newcomer = wrong.node(&world).await;
    world.pass(SEEN_TWICE).await;
    assert!(has_given_way(&newcomer), "{:?}", newcomer.clock_status());
    assert!(!newcomer.has_trusted_clock(), "it has only watched");
    assert!(is_refused(&newcomer, intent("new", "5")).await);
    world.pass(SETTLE).await;
    assert_eq!(live.clock_status(), ClockStatus::Trusted, "never both");
    live.run(intent("new", "5"), charge).await.expect("a value");
    assert!(mark(&world).await <= world.clock.now(), "its time is not in the store");
    live.shutdown(secs(1)).await;
    world.pass(2 * SETTLE).await;
    assert!(is_refused(&newcomer, as_new("k")).await, "its outcome is minutes old");
    // Nobody is left who could contradict it, but the store remembers.
    newcomer.shutdown(secs(1)).await;
    let restarted = wrong.node(&world).await;
    assert!(has_given_way(&restarted), "{:?}", restarted.clock_status());
    world.pass(2 * SETTLE).await;
    assert!(is_refused(&restarted, as_new("k")).await && is_refused(&restarted, intent("other", "5")).await);
    let back = right.node(&world).await;
    assert_eq!(back.clock_status(), ClockStatus::Trusted);
    back.run(intent("other", "5"), charge).await.expect("a value");
    assert!(back.run(as_new("k"), never).await.expect("its outcome").replayed);
    wrong.set_ahead(secs(0));
    world.pass(secs(12)).await;
    assert!(restarted.clock_status().is_trusted(), "they agree");
    assert!(restarted.run(as_new("k"), never).await.expect("its outcome").replayed);
}

/// A roll-out onto a wrong machine has to stop before the right one is stopped.
#[tokio::test]
async fn a_newcomer_is_not_ready_while_it_watches() {
    let world = World::new();
    let (first, other) = (Machine::new(&world, secs(0)), Machine::new(&world, secs(0)));
    let stopped = first.node(&world).await;
    assert!(stopped.has_trusted_clock(), "in a new store there is nobody to wait for");
    world.pass(SETTLE).await;
    stopped.shutdown(secs(1)).await;
    world.pass(secs(60)).await;
    let newcomer = other.node(&world).await;
    assert!(newcomer.clock_status().is_trusted() && !newcomer.has_trusted_clock(), "somebody may still come");
    newcomer.run(intent("k", "5"), charge).await.expect("what is sent nevertheless is run");
    world.pass(WATCH + secs(12)).await;
    assert!(newcomer.has_trusted_clock(), "nobody came");
}

#[tokio::test]
async fn a_newcomer_that_agrees_again_is_forgotten_as_a_contradiction() {
    let world = World::new();
    let (right, wrong) = (Machine::new(&world, secs(0)), Machine::new(&world, 6 * DAY));
    let live = right.node(&world).await;
    world.pass(secs(60)).await;
    let newcomer = wrong.node(&world).await;
    world.pass(SEEN_TWICE).await;
    assert!(has_given_way(&newcomer));
    wrong.set_ahead(secs(0));
    world.pass(secs(40)).await;
    assert_eq!(newcomer.clock_status(), ClockStatus::Trusted);
    live.shutdown(secs(1)).await;
    newcomer.shutdown(secs(1)).await;
    world.clock.advance(6 * DAY + secs(3600));
    let after = right.node(&world).await;
    assert_eq!(after.clock_status(), ClockStatus::Trusted, "a stop of six days, and no clock is in question");
}

#[tokio::test]
async fn an_operator_tells_which_of_two_clocks_is_right() {
    let world = World::new();
    let (slow, right) = (Machine::new(&world, secs(0)), Machine::new(&world, 6 * DAY));
    let live = slow.node(&world).await;
    world.pass(secs(60)).await;
    let newcomer = right.node(&world).await;
    world.pass(SEEN_TWICE).await;
    assert!(has_given_way(&newcomer));
    newcomer.confirm_clock("ann", "compared with two time servers").await.expect("confirmed");
    assert!(newcomer.clock_status().is_trusted() && newcomer.has_trusted_clock());
    newcomer.run(intent("new", "5"), charge).await.expect("a value");
    world.pass(secs(12)).await;
    assert!(!live.clock_status().is_trusted() && is_refused(&live, intent("k", "5")).await);
    newcomer.shutdown(secs(1)).await;
    let restarted = right.node(&world).await;
    assert_eq!(restarted.clock_status(), ClockStatus::Trusted, "the contradiction is over");
}

#[tokio::test]
async fn a_newcomer_that_nobody_contradicts_takes_over_after_a_while() {
    let world = World::new();
    let first = Machine::new(&world, secs(0)).node(&world).await;
    first.run(intent("k", "5"), charge).await.expect("a value");
    first.shutdown(secs(1)).await;
    let stopped_at = mark(&world).await;
    world.clock.advance(6 * DAY);
    let engine = Machine::new(&world, secs(0)).node(&world).await;
    engine.run(intent("new", "5"), charge).await.expect("a value at once");
    world.pass(WATCH.saturating_sub(secs(1))).await;
    assert_eq!(mark(&world).await, stopped_at, "somebody may still contradict it");
    world.pass(secs(12)).await;
    assert!(mark(&world).await > stopped_at + 6 * DAY);
    world.pass(SETTLE).await;
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Expired, .. })
    ));
}

#[tokio::test]
async fn a_newcomer_counts_no_time_in_which_it_could_not_see_the_mark() {
    use semel_testkit::faults::Fault;
    let world = World::new();
    let (right, wrong) = (Machine::new(&world, secs(0)), Machine::new(&world, 6 * DAY));
    let live = right.node(&world).await;
    world.pass(secs(60)).await;
    let newcomer = wrong.node(&world).await;
    // Neither of them reaches the store.
    world.fate(|_| Fault::FailBefore);
    world.pass(secs(60)).await;
    world.fate(|_| Fault::Pass);
    world.pass(secs(30)).await;
    assert!(has_given_way(&newcomer), "{:?}", newcomer.clock_status());
    assert!(live.clock_status().is_trusted() && mark(&world).await <= world.clock.now());
}

#[tokio::test]
async fn a_write_of_a_dead_node_that_arrives_late_contradicts_nobody() {
    use semel_testkit::faults::{Fault, Question};
    let world = World::new();
    let machine = Machine::new(&world, secs(0));
    let first = machine.node(&world).await;
    world.pass(secs(60)).await;
    let before = mark(&world).await;
    world.fate(|call| if call.question == Question::Set { Fault::Late } else { Fault::Pass });
    world.pass(secs(12)).await;
    world.fate(|_| Fault::FailBefore);
    let closing = tokio::spawn(async move { first.shutdown(secs(0)).await });
    world.pass(secs(1)).await;
    closing.abort();
    world.fate(|_| Fault::Pass);
    world.clock.advance(secs(60));
    let engine = machine.node(&world).await;
    world.pass(secs(1)).await;
    assert_eq!(mark(&world).await, before, "it watches");
    while world.store.deliver().await.is_some() {}
    let late = mark(&world).await;
    assert!(late > before && late < world.clock.now() - secs(60));
    world.pass(secs(60)).await;
    assert_eq!(engine.clock_status(), ClockStatus::Trusted);
    assert!(mark(&world).await > world.clock.now() - secs(12), "it writes its time");
}

#[tokio::test]
async fn what_a_newcomer_dated_before_it_gave_way_is_corrected() {
    let world = World::new();
    let (right, wrong) = (Machine::new(&world, secs(0)), Machine::new(&world, 6 * DAY));
    let live = right.node(&world).await;
    world.pass(SETTLE).await;
    let newcomer = wrong.node(&world).await;
    let doubtful = intent_under(Policy::new(Class::Downstream), "k", "5");
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    drop(newcomer.run(doubtful.clone(), lost).await);
    assert!(world.record().await.created_at() > world.clock.now() + 5 * DAY, "it claims at once");
    world.pass(secs(60)).await;
    assert!(has_given_way(&newcomer));
    let record = world.record().await;
    assert_eq!(record.state_name(), StateName::Unknown);
    assert!(record.created_at() < world.clock.now(), "{record:?}");
    // In six days it would have looked fresh.
    world.pass(secs(3600)).await;
    world.clock.advance(6 * DAY);
    world.pass(SETTLE).await;
    let repeated = live.run(doubtful, never).await;
    assert!(matches!(repeated, Err(RunError { reason: RunErrorReason::Unknown, .. })), "{repeated:?}");
}

#[tokio::test]
async fn a_lease_from_the_future_is_over_soon_after_a_confirmation() {
    let world = World::new();
    let ahead = Machine::new(&world, secs(3600));
    let first = ahead.node(&world).await;
    let short = Policy::new(Class::External).with(|policy| policy.lease = secs(2)).expect("valid");
    let asks = |key: &str| intent_under(short.clone(), key, "5");
    for intent in [asks("begun"), asks("reserved").reserved()] {
        assert!(matches!(first.claim(&intent).await, Ok(Claimed::Leased(_))));
    }
    // As if it was killed.
    world.fate(|_| semel_testkit::faults::Fault::FailBefore);
    let closing = tokio::spawn(async move { first.shutdown(secs(0)).await });
    world.pass(secs(1)).await;
    closing.abort();
    world.fate(|_| semel_testkit::faults::Fault::Pass);
    let engine = Machine::new(&world, secs(0)).node(&world).await;
    assert!(!engine.clock_status().is_trusted(), "behind what the store remembers");
    engine.confirm_clock("ann", "it was an hour ahead").await.expect("confirmed");
    let is_unknown = async |key: &str| {
        matches!(engine.run(asks(key), never).await, Err(RunError { reason: RunErrorReason::Unknown, .. }))
    };
    let asking = tokio::spawn({
        let (engine, intent) = (engine.clone(), asks("begun"));
        async move { engine.run(intent, never).await }
    });
    world.pass(secs(3)).await;
    let early = asking.await.expect("no panic");
    let is_in_progress = matches!(early, Err(RunError { reason: RunErrorReason::InProgress, .. }));
    assert!(is_in_progress, "another node may not have heard of it: {early:?}");
    // One heartbeat, and less than two and a half.
    world.pass(secs(9)).await;
    assert!(is_unknown("begun").await);
    let next = engine.run(asks("reserved"), charge).await.expect("a value");
    assert_eq!(next.value, 2, "the next attempt");
}

#[tokio::test]
async fn a_corrected_slow_clock_ends_no_tombstone() {
    let world = World::new();
    let engine = Machine::new(&world, secs(0)).node(&world).await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    world.clock.advance(DAY);
    world.pass(SETTLE).await;
    assert_eq!(world.record().await.state_name(), StateName::Expired);
    world.clock.set(world.clock.now() + 40 * DAY);
    engine.confirm_clock("ann", "it was forty days slow").await.expect("confirmed");
    world.pass(2 * SETTLE).await;
    let is_expired = async |key: &str| {
        matches!(
            engine.run(intent(key, "5"), never).await,
            Err(RunError { reason: RunErrorReason::Expired, .. })
        )
    };
    assert!(is_expired("k").await, "forty days have not passed");
    let (record, now) = (world.record().await, world.clock.now());
    assert!(record.due_at() > Some(now + 29 * DAY), "it is not due in every round: {record:?}");
    let version = record.version();
    world.pass(secs(60)).await;
    assert_eq!(world.record().await.version(), version, "it is written once");
    world.clock.advance((30 * DAY).saturating_sub(4 * SETTLE));
    world.pass(secs(60)).await;
    assert!(is_expired("k").await);
    world.clock.advance(4 * SETTLE);
    world.pass(secs(60)).await;
    assert_eq!(engine.run(intent("k", "5"), charge).await.expect("a value").value, 1, "as a new key");
}
