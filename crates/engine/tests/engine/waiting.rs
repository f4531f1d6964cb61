//! Duplicates wait for a running attempt, on any node, and never start one.

use super::world::{World, charge, intent, intent_under, never, secs};
use futures_util::FutureExt;
use semel::core::classify::Ending;
use semel::core::id::CommandId;
use semel::core::machine::{self, Stamp};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::store::{Change, Clock as _, Delegate, Store, Written};
use semel::{Attempt, Claimed, Engine, Failed, RequestOutcome, RunError, RunErrorReason, SystemRandom};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Running = JoinHandle<Result<semel::Done<u32>, RunError>>;

/// An attempt that runs until the test ends it.
fn run(engine: &Engine, key: &'static str) -> (oneshot::Sender<Result<u32, Failed>>, Running) {
    let (end, ended) = oneshot::channel();
    let work = |_: Attempt| async move { ended.await.expect("an answer") };
    let engine = engine.clone();
    (end, tokio::spawn(async move { engine.run(intent(key, "5"), work).await }))
}

fn duplicate(engine: &Engine, key: &'static str) -> Running {
    let engine = engine.clone();
    tokio::spawn(async move { engine.run(intent(key, "5"), never).await })
}

#[tokio::test]
async fn a_duplicate_in_the_same_process_is_woken_at_once() {
    let world = World::new();
    let engine = world.engine().await;
    let (end, first) = run(&engine, "k");
    world.rest().await;
    let waiting = duplicate(&engine, "k");
    world.rest().await;
    let calls = world.store.calls();
    end.send(Ok(7)).expect("it waits");
    // No time passes: only a wake-up can end the wait.
    world.rest().await;
    let done = waiting.await.expect("no panic").expect("the outcome");
    assert_eq!((done.value, done.replayed), (7, true));
    assert_eq!(first.await.expect("no panic").expect("a value").value, 7);
    assert_eq!(world.store.calls(), calls + 1, "the finish, and no read by the duplicate");
}

#[tokio::test]
async fn a_duplicate_on_another_node_polls_for_the_outcome() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (end, first) = run(&one, "k");
    world.rest().await;
    let waiting = duplicate(&other, "k");
    world.pass(secs(1)).await;
    assert!(!waiting.is_finished());
    end.send(Ok(7)).expect("it waits");
    world.pass(secs(1)).await;
    let done = waiting.await.expect("no panic").expect("the outcome");
    assert_eq!((done.value, done.replayed), (7, true));
    drop(first.await);
}

#[tokio::test]
async fn a_wait_ends_in_time_wherever_the_attempt_runs() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (_end, _first) = run(&one, "k");
    world.rest().await;
    let (here, there) = (duplicate(&one, "k"), duplicate(&other, "k"));
    world.pass(secs(1)).await;
    assert!(!here.is_finished() && !there.is_finished());
    world.pass(secs(1) + secs(1) / 2).await;
    assert!(matches!(
        here.await.expect("no panic"),
        Err(RunError { reason: RunErrorReason::InProgress, .. })
    ));
    assert!(matches!(
        there.await.expect("no panic"),
        Err(RunError { reason: RunErrorReason::InProgress, .. })
    ));
}

#[tokio::test]
async fn a_waiter_gets_the_answer_of_an_attempt_without_effect() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (end, first) = run(&one, "k");
    world.rest().await;
    let (here, there) = (duplicate(&one, "k"), duplicate(&other, "k"));
    world.rest().await;
    end.send(Err(Failed::NotApplied("busy".into()))).expect("it waits");
    world.pass(secs(1)).await;
    for waiting in [here, there] {
        let result = waiting.await.expect("no panic");
        assert!(
            matches!(&result, Err(RunError { reason: RunErrorReason::Failed(Failed::NotApplied(why)), .. }) if why == "busy"),
            "{result:?}"
        );
    }
    drop(first.await);
    assert_eq!(one.run(intent("k", "5"), charge).await.expect("the next request").value, 2);
}

#[tokio::test]
async fn a_waiter_does_not_take_over_from_a_dying_worker() {
    let world = World::new();
    let engine = world.engine().await;
    let policy = || Policy::new(Class::Downstream).with(|policy| policy.lease = secs(1)).expect("valid");
    let Claimed::Leased(dies) = engine.claim(&intent_under(policy(), "k", "5")).await.expect("claimed")
    else {
        panic!("no other owner")
    };
    drop(dies);
    let waiting = tokio::spawn({
        let engine = engine.clone();
        let ask = intent_under(policy(), "k", "5").waiting(secs(5));
        async move { engine.run(ask, never).await }
    });
    world.pass(secs(6)).await;
    let result = waiting.await.expect("no panic");
    assert!(
        matches!(
            result,
            Err(RunError { reason: RunErrorReason::Unknown, .. }
                | RunError { reason: RunErrorReason::InProgress, .. })
        ),
        "{result:?}"
    );
    let next = engine.run(intent_under(policy(), "k", "5"), charge).await.expect("the next request may");
    assert_eq!(next.value, 2);
}

#[tokio::test]
async fn a_mismatch_is_reported_without_waiting_on_any_node() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (_end, _first) = run(&one, "k");
    world.rest().await;
    for engine in [&one, &other] {
        let result = engine.run(intent("k", "6"), never).await;
        assert!(matches!(result, Err(RunError { reason: RunErrorReason::Mismatch, .. })), "{result:?}");
    }
}

#[tokio::test]
async fn a_duplicate_of_an_uncertain_attempt_gets_unknown() {
    let world = World::new();
    let engine = world.engine().await;
    let (end, first) = run(&engine, "k");
    world.rest().await;
    let waiting = duplicate(&engine, "k");
    world.rest().await;
    end.send(Err(Failed::InDoubt("no answer".into()))).expect("it waits");
    world.rest().await;
    assert!(matches!(
        waiting.await.expect("no panic"),
        Err(RunError { reason: RunErrorReason::Unknown, .. })
    ));
    drop(first.await);
}

#[tokio::test]
async fn replays_from_memory_are_still_judged() {
    let world = World::new();
    let engine = world.engine().await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    let calls = world.store.calls();
    assert!(engine.run(intent("k", "5"), never).await.expect("the outcome").replayed);
    assert!(matches!(
        engine.run(intent("k", "6"), never).await,
        Err(RunError { reason: RunErrorReason::Mismatch, .. })
    ));
    assert_eq!(world.store.calls(), calls, "no round trip");
    world.skip(secs(24 * 3600)).await;
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Expired, .. })
    ));
}

#[tokio::test]
async fn only_final_outcomes_are_kept_in_memory() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let Claimed::Leased(lease) = one.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    lease.finish(Ending::NotApplied(None)).await.expect("stored");
    assert_eq!(other.run(intent("k", "5"), charge).await.expect("the second attempt").value, 2);
    let done = one.run(intent("k", "5"), never).await.expect("what the other node did");
    assert_eq!(done.value, 2);
}

#[tokio::test]
async fn attending_returns_the_outcome_and_starts_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    let attend = |wait| {
        let (engine, intent) = (engine.clone(), intent("k", "5").waiting(wait));
        tokio::spawn(async move { engine.attend(&intent).await.expect("an answer").outcome })
    };
    let (short, long) = (attend(secs(1)), attend(secs(10)));
    world.pass(secs(2)).await;
    assert!(matches!(short.await.expect("no panic"), RequestOutcome::InProgress { .. }));
    lease.finish(Ending::NotApplied(Some(Outcome::value("refused")))).await.expect("stored");
    world.pass(secs(1)).await;
    let RequestOutcome::Replayed(replayed) = long.await.expect("no panic") else { panic!("it has ended") };
    assert_eq!(replayed.outcome, Outcome::value("refused"));
    let late = attend(secs(1));
    world.pass(secs(2)).await;
    assert!(matches!(late.await.expect("no panic"), RequestOutcome::Replayed(_)));
    assert_eq!(world.record().await.attempt(), 1);
}

/// A store that notifies of changes; the record changes right before its first subscription.
struct Notifying {
    inner: Arc<dyn Store>,
    end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Delegate for Notifying {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn changed(&self, _: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        if let Some(end) = self.end.lock().expect("no panic").take() {
            end();
        }
        Some(Box::pin(std::future::pending()))
    }
}

#[tokio::test]
async fn a_change_between_the_first_look_and_the_subscription_is_noticed() {
    let world = World::new();
    let one = world.engine().await;
    let Claimed::Leased(lease) = one.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    let write = machine::finish(
        &lease.record(),
        lease.token(),
        Ending::Succeeded(Outcome::value("7")),
        Stamp::new(world.clock.now(), "one", ""),
    );
    let (store, id, write) = (Arc::clone(&world.store), lease.id(), write.expect("its own"));
    let end = move || {
        let written = store.write(id, Change::from(&write)).now_or_never().expect("memory answers at once");
        assert!(matches!(written, Ok(Written::Done { .. })), "{written:?}");
    };
    let notifying = Notifying { inner: world.store.clone(), end: Mutex::new(Some(Box::new(end))) };
    let other = Engine::builder(Arc::new(notifying)).on(
        Arc::new(world.clock.clone()),
        Arc::new(SystemRandom),
        Arc::new(tokio::runtime::Handle::current()),
    );
    let other = other.build().await.expect("the store answers");
    let waiting = duplicate(&other, "k");
    // No time passes: a sleeping waiter does not wake.
    world.rest().await;
    assert!(waiting.is_finished(), "it changed before the first subscription");
    assert_eq!(waiting.await.expect("no panic").expect("the outcome").value, 7);
}
