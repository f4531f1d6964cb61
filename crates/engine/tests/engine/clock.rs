//! A wrong clock causes no second effect, whichever way and whenever it jumps.

use super::world::{SWEEP, World, charge, forever, intent, intent_under, never, secs};
use semel::core::machine::{Refusal, Verdict};
use semel::core::policy::{AfterExpiry, Class, Policy};
use semel::core::record::StateName;
use semel::core::store::{Clock as _, Count, Setting, Store as _};
use semel::core::time::Time;
use semel::secrets::RefreshSettings;
use semel::time::{ClockStatus, confirm_clock};
use semel::{
    Builder, Case, Claimed, Engine, Error, Failed, Finding, Intent, LeaseError, OperatorError, RunError,
    RunErrorReason, Settings, Spawn, SystemRandom, Task,
};
use semel_testkit::faults::{Fault, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const DAY: Duration = secs(24 * 3600);
/// How long a start settles.
const SETTLE: Duration = secs(120);

/// An engine with the default skew.
async fn node(world: &World) -> Engine {
    world.engine_with(|builder| builder.settings(Settings::default())).await
}

async fn records(world: &World) -> u64 {
    world.store.count(Count::Records, u64::MAX).await.expect("counted").count
}

fn forward(world: &World, by: Duration) {
    world.clock.set(world.clock.now() + by);
}

fn back(world: &World, by: Duration) {
    world.clock.set(world.clock.now() - by);
}

async fn replays(engine: &Engine, key: &str) -> bool {
    engine.run(intent(key, "5"), never).await.expect("an outcome").replayed
}

async fn is_refused(engine: &Engine, intent: Intent) -> bool {
    matches!(engine.run(intent, never).await, Err(RunError { reason: RunErrorReason::ClockNotTrusted, .. }))
}

#[tokio::test]
async fn a_clock_that_jumps_ahead_reruns_no_outcome() {
    let world = World::new();
    let engine = node(&world).await;
    let as_new = Policy::new(Class::External)
        .with(|policy| policy.after_expiry = AfterExpiry::RunAsNew)
        .expect("valid");
    engine.run(intent("k", "5"), charge).await.expect("a value");
    engine.run(intent_under(as_new.clone(), "n", "5"), charge).await.expect("a value");
    world.pass(SETTLE).await;
    forward(&world, 32 * DAY);
    world.pass(10 * SWEEP).await;
    assert!(replays(&engine, "k").await && replays(&engine, "n").await);
    assert_eq!(records(&world).await, 2, "nothing is swept");
    assert!(world.saw("Moved") && !engine.clock_status().is_trusted());
    // New records are dated by the real time.
    engine.run(intent("new", "5"), charge).await.expect("a value");
    back(&world, 32 * DAY);
    world.pass(SWEEP).await;
    assert_eq!(engine.clock_status(), ClockStatus::Trusted);
    world.skip(DAY).await;
    assert!(matches!(
        engine.run(intent("new", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Expired, .. })
    ));
}

#[tokio::test]
async fn a_clock_that_jumps_back_makes_nothing_expire_early() {
    let world = World::new();
    let engine = node(&world).await;
    back(&world, 400 * DAY);
    engine.run(intent("k", "5"), charge).await.expect("a value");
    world.pass(SETTLE).await;
    forward(&world, 400 * DAY);
    world.pass(10 * SWEEP).await;
    assert!(replays(&engine, "k").await);
    let next = node(&world).await;
    world.pass(SETTLE + 3 * SWEEP).await;
    assert!(replays(&next, "k").await, "nor after a restart");
}

#[tokio::test]
async fn a_start_with_a_clock_far_ahead_purges_and_reruns_nothing() {
    let world = World::new();
    let first = node(&world).await;
    for n in 0..50 {
        first.run(intent(&format!("key-{n}"), "5"), charge).await.expect("a value");
    }
    first.shutdown(secs(1)).await;
    forward(&world, 40 * DAY);
    let engine = node(&world).await;
    world.pass(2 * SETTLE).await;
    assert_eq!(records(&world).await, 50);
    for n in 0..50 {
        assert!(is_refused(&engine, intent(&format!("key-{n}"), "5")).await);
    }
    assert!(is_refused(&engine, intent("new", "5")).await);
    assert!(world.saw("Distrusted(Ahead("));
    back(&world, 40 * DAY);
    world.pass(secs(11)).await;
    assert!(world.saw("Plausible"));
    for n in 0..50 {
        assert!(replays(&engine, &format!("key-{n}")).await);
    }
    engine.run(intent("new", "5"), charge).await.expect("a value");
}

#[tokio::test]
async fn a_start_with_a_slow_clock_claims_nothing() {
    let world = World::new();
    let first = node(&world).await;
    first.run(intent("k", "5"), charge).await.expect("a value");
    first.shutdown(secs(1)).await;
    back(&world, 40 * DAY);
    let engine = node(&world).await;
    world.pass(SETTLE).await;
    assert!(is_refused(&engine, intent("new", "5")).await);
    assert!(replays(&engine, "k").await, "it has certainly not expired");
    forward(&world, 40 * DAY);
    world.pass(secs(11)).await;
    engine.run(intent("new", "5"), charge).await.expect("a value");
    world.pass(2 * SETTLE).await;
    assert!(replays(&engine, "new").await);
}

#[tokio::test]
async fn a_restart_after_a_long_stop_needs_no_operator() {
    let world = World::new();
    let first = node(&world).await;
    first.run(intent("k", "5"), charge).await.expect("a value");
    first.shutdown(secs(1)).await;
    world.clock.advance(6 * DAY);
    let engine = node(&world).await;
    engine.run(intent("new", "5"), charge).await.expect("a value at once");
    assert!(is_refused(&engine, intent("k", "5")).await, "it seems expired");
    world.pass(SETTLE + 2 * SWEEP).await;
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Expired, .. })
    ));
}

#[tokio::test]
async fn a_step_of_a_second_interrupts_nothing() {
    let world = World::new();
    let engine = node(&world).await;
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("running", "5"), forever).await }
    });
    world.pass(SETTLE).await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    for step in [true, false, true, false] {
        if step {
            forward(&world, secs(1));
        } else {
            back(&world, secs(1));
        }
        world.pass(secs(1)).await;
        assert!(replays(&engine, "k").await);
        engine.run(intent(&format!("new-{:?}", world.clock.now()), "5"), charge).await.expect("a value");
    }
    assert!(!world.saw("Clock(") && !world.saw("LeaseLost"));
    running.abort();
}

#[tokio::test]
async fn every_node_follows_a_confirmed_clock() {
    let world = World::new();
    let (one, other) = (node(&world).await, node(&world).await);
    one.run(intent("k", "5"), charge).await.expect("a value");
    world.pass(SETTLE).await;
    forward(&world, 32 * DAY);
    world.pass(secs(11)).await;
    assert!(!one.clock_status().is_trusted() && !other.clock_status().is_trusted());
    let confirmed = one.confirm_clock("ann", "the machine was suspended").await.expect("confirmed");
    assert_eq!(confirmed, world.clock.now());
    assert_eq!(one.clock_status(), ClockStatus::Trusted);
    world.pass(secs(11)).await;
    assert_eq!(other.clock_status(), ClockStatus::Trusted);
    world.pass(SETTLE + 2 * SWEEP).await;
    for engine in [&one, &other] {
        assert!(replays(engine, "k").await, "a month old, or two minutes: it is not known");
    }
    world.skip(DAY).await;
    for engine in [&one, &other] {
        assert!(matches!(
            engine.run(intent("k", "5"), never).await,
            Err(RunError { reason: RunErrorReason::Expired, .. })
        ));
    }
}

#[tokio::test]
async fn outcomes_around_a_confirmation_are_kept_their_whole_retention() {
    let world = World::new();
    let mut settings = Settings::default();
    settings.clock.settle = Duration::ZERO;
    let short = Policy::new(Class::External)
        .with(|policy| {
            policy.ttl = secs(3_600);
            policy.tombstone = secs(3_600);
        })
        .expect("valid");
    let asks = |key: &str| intent_under(short.clone(), key, "5");
    let engine = world.engine_with(|builder| builder.settings(settings.clone())).await;
    world.pass(secs(11)).await;
    engine.run(asks("before"), charge).await.expect("a value");
    forward(&world, 3 * secs(3_600));
    confirm_clock(&*world.store, &world.clock, "ann", "it was three hours behind").await.expect("confirmed");
    // The node does not know about it yet.
    engine.run(asks("after"), charge).await.expect("a value");
    world.pass(secs(40)).await;
    let restarted = world.engine_with(|builder| builder.settings(settings)).await;
    for engine in [&engine, &restarted] {
        for key in ["before", "after"] {
            assert!(engine.run(asks(key), never).await.expect("its outcome").replayed, "{key}");
        }
    }
}

#[tokio::test]
async fn an_expired_lease_stays_expired_when_the_clock_is_set_back() {
    let world = World::new();
    let engine = node(&world).await;
    let policy = Policy::new(Class::External).with(|policy| policy.lease = secs(60)).expect("valid");
    let Claimed::Leased(lease) = engine.claim(&intent_under(policy, "k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    world.pass(secs(11)).await;
    lease.check().expect("a minute is not over");
    back(&world, secs(3_600));
    engine.confirm_clock("ann", "it was an hour ahead").await.expect("confirmed");
    lease.check().expect("nor is it now");
    world.pass(secs(50)).await;
    assert!(lease.check().is_err(), "a minute has passed, whatever the clock shows");
    lease.renew().await.expect("no takeover yet");
    lease.check().expect("from now on by the new time");
}

/// Spawns the tasks of callers, but no background tasks of an engine: no heartbeat, no sweep.
#[derive(Default)]
struct WithoutHousekeeping {
    is_built: AtomicBool,
}

impl Spawn for WithoutHousekeeping {
    fn spawn(&self, task: Task) {
        if self.is_built.load(Ordering::Relaxed) {
            tokio::spawn(task);
        }
    }
}

#[tokio::test]
async fn a_node_suspended_during_a_confirmation_uses_the_new_time() {
    let world = World::new();
    let without = Arc::new(WithoutHousekeeping::default());
    let (clock, spawn) = (Arc::new(world.clock.clone()), Arc::clone(&without));
    let on =
        |builder: Builder| builder.settings(Settings::default()).on(clock, Arc::new(SystemRandom), spawn);
    let engine = world.engine_with(on).await;
    without.is_built.store(true, Ordering::Relaxed);
    let policy = Policy::new(Class::External).with(|policy| policy.lease = secs(60)).expect("valid");
    let asks = intent_under(policy, "k", "5");
    let Claimed::Leased(lease) = engine.claim(&asks).await.expect("claimed") else {
        panic!("no other owner")
    };
    lease.check().expect("a minute is not over");
    forward(&world, 3 * secs(3_600));
    confirm_clock(&*world.store, &world.clock, "ann", "it was three hours behind").await.expect("confirmed");
    let other = node(&world).await;
    world.pass(secs(30)).await;
    assert!(lease.check().is_err(), "half a minute is left only by the replaced time");
    lease.renew().await.expect("no takeover yet");
    lease.check().expect("by the new time");
    world.pass(secs(20)).await;
    let claimed = other.claim(&asks).await.expect("an answer");
    assert!(matches!(claimed, Claimed::Answered(_)), "it is held: {claimed:?}");
}

#[tokio::test]
async fn nothing_is_claimed_while_the_time_of_other_nodes_is_unknown() {
    let world = World::new();
    // A view of the secret that is valid for long, so that only the heartbeat is missing.
    let refresh = RefreshSettings { good_for: secs(3_600), ..RefreshSettings::default() };
    let engine =
        world.engine_with(|builder| builder.settings(Settings::default()).secret_refresh(refresh)).await;
    world.fate(|call| if call.question == Question::Set { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(60)).await;
    // The first of them asks for all.
    let calls = (0..5).map(|number| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.run(intent(&format!("key-{number}"), "5"), never).await })
    });
    for call in calls.collect::<Vec<_>>() {
        let result = call.await.expect("no panic");
        let is_not_run =
            matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::Store(_)), .. }));
        assert!(is_not_run, "{result:?}");
    }
    assert_eq!(records(&world).await, 0, "they could not be begun, and perhaps not be given back");
}

#[tokio::test]
async fn a_node_with_a_wrong_clock_follows_a_confirmation_later() {
    let world = World::new();
    let engine = node(&world).await;
    world.pass(secs(20)).await;
    forward(&world, 40 * DAY);
    confirm_clock(&*world.store, &world.clock, "ann", "it was forty days behind").await.expect("confirmed");
    // Another machine's clock, as this node sees it, which is not corrected yet.
    back(&world, 40 * DAY);
    world.pass(secs(11)).await;
    assert!(!engine.clock_status().is_trusted() && world.saw("Distrusted(Behind("));
    assert!(engine.has_trusted_clock(), "until then");
    assert!(is_refused(&engine, intent("new", "5")).await, "it would be dated by a replaced time");
    world.pass(secs(3_600)).await;
    assert!(is_refused(&engine, intent("new", "5")).await);
    forward(&world, 40 * DAY);
    world.pass(secs(11)).await;
    assert_eq!(engine.clock_status(), ClockStatus::Trusted);
    engine.run(intent("new", "5"), charge).await.expect("a value");
    engine.shutdown(secs(1)).await;
    let restarted = node(&world).await;
    world.pass(SETTLE).await;
    assert!(replays(&restarted, "new").await, "dated by the time that was confirmed");
}

#[tokio::test]
async fn an_untrusted_clock_answers_nothing_from_memory() {
    let world = World::new();
    let engine = node(&world).await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    world.fate(move |call| {
        counted.fetch_add(usize::from(call.question == Question::Get), Ordering::Relaxed);
        Fault::Pass
    });
    assert!(replays(&engine, "k").await);
    assert_eq!(looks.load(Ordering::Relaxed), 0, "from memory");
    forward(&world, 40 * DAY);
    confirm_clock(&*world.store, &world.clock, "ann", "it was forty days behind").await.expect("confirmed");
    back(&world, 40 * DAY);
    world.pass(secs(11)).await;
    assert!(!engine.clock_status().is_trusted());
    looks.store(0, Ordering::Relaxed);
    assert!(replays(&engine, "k").await);
    assert_ne!(looks.load(Ordering::Relaxed), 0, "others may have used the key again");
}

#[tokio::test]
async fn a_person_can_confirm_the_clock_without_an_engine() {
    let world = World::new();
    node(&world).await.shutdown(secs(1)).await;
    forward(&world, 40 * DAY);
    let engine = node(&world).await;
    assert!(is_refused(&engine, intent("new", "5")).await);
    confirm_clock(&*world.store, &world.clock, "ann", "a long holiday").await.expect("confirmed");
    world.pass(secs(11)).await;
    engine.run(intent("new", "5"), charge).await.expect("a value");
}

#[tokio::test]
async fn a_key_claimed_a_year_ahead_can_be_settled_afterwards() {
    let world = World::new();
    let first = node(&world).await;
    let lease = |engine: Engine, intent: Intent| async move {
        match engine.claim(&intent).await.expect("claimed") {
            Claimed::Leased(lease) => lease.operation_id(),
            Claimed::Answered(resolved) => panic!("{resolved:?}"),
        }
    };
    // A year ahead from the start: nobody could know.
    let started = lease(first.clone(), intent("started", "5")).await;
    let reserved = lease(first.clone(), intent("reserved", "5").reserved()).await;
    first.shutdown(secs(1)).await;
    back(&world, 365 * DAY);
    let engine = node(&world).await;
    assert!(is_refused(&engine, intent("new", "5")).await, "behind what the store remembers");
    engine.confirm_clock("ann", "it was a year ahead").await.expect("confirmed");
    world.pass(SETTLE).await;
    let absent = || Verdict::NotApplied { asked_at: Time::MAX };
    let resolved = engine.resolve(started, absent(), "ann", "not in the ledger").await;
    assert!(matches!(resolved, Err(OperatorError::Refused(Refusal::QuietUntil(_)))), "{resolved:?}");
    world.pass(secs(120)).await;
    let settled = engine.resolve(started, absent(), "ann", "not in the ledger").await.expect("settled");
    assert_eq!(settled.state_name(), StateName::FailedNotReplayable);
    engine.release(reserved, "ann", "never begun").await.expect("released");
    assert_eq!(engine.run(intent("reserved", "6"), charge).await.expect("a value").value, 2);
}

#[tokio::test]
async fn an_unknown_outcome_from_the_future_is_probed_now() {
    let world = World::new();
    let first = node(&world).await;
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    drop(first.run(intent("k", "5"), lost).await);
    first.shutdown(secs(1)).await;
    back(&world, 365 * DAY);
    let asking = |builder: Builder| {
        builder.reconciler("POST /charges", |_: Case| std::future::ready(Finding::NotFound))
    };
    let engine = world.engine_with(|builder| asking(builder.settings(Settings::default()))).await;
    engine.confirm_clock("ann", "it was a year ahead").await.expect("confirmed");
    world.pass(secs(40)).await;
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "its quiet period has begun");
    world.pass(SETTLE + secs(20)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn a_clock_that_jumped_ahead_ends_no_quiet_period() {
    let world = World::new();
    let asking = |builder: Builder| {
        builder.reconciler("POST /charges", |_: Case| std::future::ready(Finding::NotFound))
    };
    let engine = world.engine_with(|builder| asking(builder.settings(Settings::default()))).await;
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    drop(engine.run(intent("k", "5"), lost).await);
    world.pass(secs(5)).await;
    forward(&world, secs(7_200));
    world.pass(secs(20)).await;
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Unknown, .. })
    ));
    world.pass(secs(2)).await;
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "27 s have passed, not two hours");
    engine.confirm_clock("ann", "it was two hours slow").await.expect("confirmed");
    world.pass(secs(60)).await;
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "nor when it is confirmed");
    world.pass(secs(60)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn an_untrusted_clock_finishes_and_renews_nothing() {
    let world = World::new();
    let first = node(&world).await;
    let Claimed::Leased(lease) = first.claim(&intent("k", "5")).await.expect("claimed") else { panic!() };
    let (id, token) = (lease.id(), lease.token());
    first.shutdown(secs(1)).await;
    back(&world, 400 * DAY);
    let engine = node(&world).await;
    let lease = engine.lease(id, token).await.expect("an answer").expect("still its own");
    assert!(matches!(lease.renew().await, Err(LeaseError::ClockNotTrusted)));
    let paid = semel::core::classify::Ending::Succeeded(semel::core::outcome::Outcome::value("7"));
    let finishing = tokio::spawn(lease.finish(paid));
    world.pass(secs(20)).await;
    assert_eq!(world.record().await.state_name(), StateName::Processing, "not dated by a wrong clock");
    forward(&world, 400 * DAY);
    world.pass(secs(20)).await;
    finishing.await.expect("no panic").expect("stored as soon as the clock was right");
    assert!(replays(&engine, "k").await);
}

#[tokio::test]
async fn an_unreadable_stored_mark_stops_new_claims() {
    let world = World::new();
    let engine = node(&world).await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    engine.shutdown(secs(1)).await;
    let settings = world.store.settings().await.expect("settings");
    let (name, mark) = settings.iter().find(|(name, _)| name == "clock").expect("a mark");
    assert_eq!(world.store.set(name, Some(mark), Some(b"nonsense")).await.expect("set"), Setting::Done);
    let engine = node(&world).await;
    assert!(is_refused(&engine, intent("new", "5")).await);
    assert!(replays(&engine, "k").await);
    engine.confirm_clock("ann", "the setting was damaged").await.expect("confirmed");
    engine.run(intent("new", "5"), charge).await.expect("a value");
}
