//! Twins wait for what runs, here or on another node, and never begin anything.

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

/// An attempt that runs until it is told how to end.
fn run(engine: &Engine, key: &'static str) -> (oneshot::Sender<Result<u32, Failed>>, Running) {
    let (end, ended) = oneshot::channel();
    let work = |_: Attempt| async move { ended.await.expect("told") };
    let engine = engine.clone();
    (end, tokio::spawn(async move { engine.run(intent(key, "5"), work).await }))
}

fn twin(engine: &Engine, key: &'static str) -> Running {
    let engine = engine.clone();
    tokio::spawn(async move { engine.run(intent(key, "5"), never).await })
}

#[tokio::test]
async fn a_twin_in_the_same_process_is_woken_at_once() {
    let world = World::new();
    let engine = world.engine().await;
    let (end, first) = run(&engine, "k");
    world.rest().await;
    let waiting = twin(&engine, "k");
    world.rest().await;
    let calls = world.store.calls();
    end.send(Ok(7)).expect("it waits");
    // No time passes: nothing but being woken can end the wait.
    world.rest().await;
    let done = waiting.await.expect("no panic").expect("the outcome");
    assert_eq!((done.value, done.replayed), (7, true));
    assert_eq!(first.await.expect("no panic").expect("a value").value, 7);
    assert_eq!(world.store.calls(), calls + 1, "the finish, and no look of the twin's");
}

#[tokio::test]
async fn a_twin_on_another_node_finds_the_outcome_by_looking() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (end, first) = run(&one, "k");
    world.rest().await;
    let waiting = twin(&other, "k");
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
    let (here, there) = (twin(&one, "k"), twin(&other, "k"));
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
async fn a_waiter_gets_the_answer_of_an_attempt_that_took_no_effect_and_begins_none() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (end, first) = run(&one, "k");
    world.rest().await;
    let (here, there) = (twin(&one, "k"), twin(&other, "k"));
    world.rest().await;
    end.send(Err(Failed::NotApplied("busy".into()))).expect("it waits");
    world.pass(secs(1)).await;
    for waiting in [here, there] {
        let told = waiting.await.expect("no panic");
        assert!(
            matches!(&told, Err(RunError { reason: RunErrorReason::Failed(Failed::NotApplied(why)), .. }) if why == "busy"),
            "{told:?}"
        );
    }
    drop(first.await);
    assert_eq!(one.run(intent("k", "5"), charge).await.expect("the next request").value, 2);
}

#[tokio::test]
async fn a_waiter_does_not_take_over_from_a_worker_that_dies_while_it_waits() {
    let world = World::new();
    let engine = world.engine().await;
    let policy =
        || Policy::new(Class::Downstream).with(|policy| policy.lease = secs(1)).expect("fit for use");
    let Claimed::Leased(dies) = engine.claim(&intent_under(policy(), "k", "5")).await.expect("claimed")
    else {
        panic!("nobody else has it")
    };
    drop(dies);
    let waiting = tokio::spawn({
        let engine = engine.clone();
        let ask = intent_under(policy(), "k", "5").waiting(secs(5));
        async move { engine.run(ask, never).await }
    });
    world.pass(secs(6)).await;
    let told = waiting.await.expect("no panic");
    assert!(
        matches!(
            told,
            Err(RunError { reason: RunErrorReason::Unknown, .. }
                | RunError { reason: RunErrorReason::InProgress, .. })
        ),
        "{told:?}"
    );
    let next = engine.run(intent_under(policy(), "k", "5"), charge).await.expect("the next request may");
    assert_eq!(next.value, 2);
}

#[tokio::test]
async fn mismatch_is_told_to_twins_here_and_elsewhere_without_waiting() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let (_end, _first) = run(&one, "k");
    world.rest().await;
    for engine in [&one, &other] {
        let told = engine.run(intent("k", "6"), never).await;
        assert!(matches!(told, Err(RunError { reason: RunErrorReason::Mismatch, .. })), "{told:?}");
    }
}

#[tokio::test]
async fn a_twin_of_an_attempt_that_ended_in_doubt_is_told_so() {
    let world = World::new();
    let engine = world.engine().await;
    let (end, first) = run(&engine, "k");
    world.rest().await;
    let waiting = twin(&engine, "k");
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
async fn replays_come_from_memory_and_are_still_judged() {
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
        panic!("nobody else has it")
    };
    lease.finish(Ending::NotApplied(None)).await.expect("stored");
    assert_eq!(other.run(intent("k", "5"), charge).await.expect("the second attempt").value, 2);
    let done = one.run(intent("k", "5"), never).await.expect("what the other node did");
    assert_eq!(done.value, 2);
}

#[tokio::test]
async fn attending_returns_the_outcome_or_in_progress_and_begins_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("nobody else is there")
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

/// A store that tells of changes, and is told right before it is first asked to: the record has just changed then.
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
        panic!("nobody else has it")
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
    let waiting = twin(&other, "k");
    // No time passes: a waiter that sleeps does not wake.
    world.rest().await;
    assert!(waiting.is_finished(), "it changed before anybody was told of changes");
    assert_eq!(waiting.await.expect("no panic").expect("the outcome").value, 7);
}
