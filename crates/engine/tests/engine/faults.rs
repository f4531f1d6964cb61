//! Lost, delayed and refused store calls lead at worst to an honest error.

use super::world::{World, charge, forever, intent, intent_under, never, secs};
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::{Error, Failed, GivenUp, RunError, RunErrorReason, Settings};
use semel_testkit::faults::{Call, Fault, Gate, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Applies `fault` to the first call of kind `question`, and lets the others pass.
fn once(question: Question, fault: fn() -> Fault) -> impl Fn(&Call) -> Fault + Send + Sync {
    let due = AtomicBool::new(true);
    move |call| {
        if call.question == question && due.swap(false, Ordering::SeqCst) { fault() } else { Fault::Pass }
    }
}

#[tokio::test]
async fn peer_bug_a_claim_whose_acknowledgement_was_lost_is_not_recognised() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(once(Question::Insert, || Fault::FailAfter));
    let done = engine.run(intent("k", "5"), charge).await.expect("its own claim");
    assert_eq!((done.value, done.stored, world.record().await.attempt()), (1, true, 1));
}

#[tokio::test]
async fn a_finish_with_a_lost_acknowledgement_is_found() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(once(Question::Swap, || Fault::FailAfter));
    let done = engine.run(intent("k", "5"), charge).await.expect("a value");
    assert_eq!((done.value, done.stored, done.replayed), (1, true, false));
    assert!(!world.saw("Fenced"));
}

#[tokio::test]
async fn a_finish_that_arrives_after_its_repeat_is_recognised() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(once(Question::Swap, || Fault::Late));
    let done = engine.run(intent("k", "5"), charge).await.expect("a value");
    assert!(done.stored);
    let before = world.record().await;
    world.store.deliver().await.expect("one is in flight").expect("an answer");
    assert_eq!(world.record().await, before, "the late copy changes nothing");
}

#[tokio::test]
async fn a_claim_that_arrives_late_does_not_run_twice() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(once(Question::Insert, || Fault::Late));
    assert_eq!(engine.run(intent("k", "5"), charge).await.expect("a fresh claim").value, 1);
    world.store.deliver().await.expect("one is in flight").expect("an answer");
    let again = engine.run(intent("k", "5"), never).await.expect("the outcome");
    assert_eq!((again.value, again.replayed), (1, true));
}

#[tokio::test]
async fn peer_bug_a_store_that_is_down_lets_work_run_unprotected() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(|_| Fault::FailBefore);
    let refused = engine.run(intent("k", "5"), never).await;
    assert!(
        matches!(&refused, Err(RunError { reason: RunErrorReason::NotRun(Error::Store(error)), .. }) if error.is_retryable())
    );
    world.fate(|_| Fault::Pass);
    assert_eq!(engine.run(intent("k", "5"), charge).await.expect("the first attempt").value, 1);
}

#[tokio::test]
async fn an_unstored_outcome_is_returned_as_such_and_stored_later() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(|call| if call.question == Question::Swap { Fault::FailBefore } else { Fault::Pass });
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), charge).await }
    });
    world.pass(secs(4)).await;
    assert!(!call.is_finished(), "it may still be stored in time");
    world.pass(secs(2)).await;
    let done = call.await.expect("no panic").expect("a value");
    assert_eq!((done.value, done.stored), (1, false));
    assert!(world.saw("Unstored"));
    // A duplicate that calls meanwhile does not get an unstored outcome.
    let duplicate = engine.run(intent("k", "5").waiting(secs(0)), never).await;
    assert!(matches!(duplicate, Err(RunError { reason: RunErrorReason::InProgress, .. })), "{duplicate:?}");
    world.fate(|_| Fault::Pass);
    world.pass(secs(3)).await;
    let again = engine.run(intent("k", "5"), never).await.expect("stored by now");
    assert_eq!((again.value, again.replayed, again.stored), (1, true, true));
}

#[tokio::test]
async fn a_claim_slower_than_its_lease_is_released_unused() {
    let world = World::new();
    let engine = world.engine().await;
    let policy = Policy::new(Class::External).with(|policy| policy.lease = secs(5)).expect("valid");
    let gate = Arc::new(Gate::new());
    let slow = Arc::clone(&gate);
    let due = AtomicBool::new(true);
    world.fate(move |call| {
        let hit = call.question == Question::Insert && due.swap(false, Ordering::SeqCst);
        if hit { Fault::DelayAfter(slow.pause()) } else { Fault::Pass }
    });
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent_under(policy, "k", "5"), never).await }
    });
    world.pass(secs(4)).await;
    // The answer arrives when the lease is almost over by the store's clock, and over by the most cautious estimate.
    world.clock.advance(secs(2));
    gate.open();
    world.rest().await;
    let result = call.await.expect("no panic");
    assert!(
        matches!(
            result,
            Err(RunError { reason: RunErrorReason::NotRun(Error::GivenUp(GivenUp::Lapsed)), .. })
        ),
        "{result:?}"
    );
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn an_ambiguous_claim_is_released_as_soon_as_found() {
    let world = World::new();
    let engine = world.engine().await;
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    world.fate(move |call| match call.question {
        Question::Insert if is_down.load(Ordering::SeqCst) => Fault::FailAfter,
        Question::Get if is_down.load(Ordering::SeqCst) => Fault::FailBefore,
        _ => Fault::Pass,
    });
    let refused = engine.run(intent("k", "5"), never).await;
    assert!(
        matches!(refused, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
        "{refused:?}"
    );
    down.store(false, Ordering::SeqCst);
    world.pass(secs(1)).await;
    assert_eq!(engine.run(intent("k", "5"), charge).await.expect("the next attempt").value, 2);
}

#[tokio::test]
async fn a_store_that_never_answers_times_out() {
    let world = World::new();
    let engine = world.engine().await;
    let never_opened = Arc::new(Gate::new());
    let gate = Arc::clone(&never_opened);
    world.fate(move |_| Fault::DelayBefore(gate.pause()));
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), never).await }
    });
    world.pass(secs(25)).await;
    let result = call.await.expect("no panic");
    assert!(
        matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn one_unanswered_write_is_enough_to_give_up() {
    let world = World::new();
    let engine = world.engine_with(|builder| builder.settings(Settings::default())).await;
    let never_opened = Arc::new(Gate::new());
    let gate = Arc::clone(&never_opened);
    world.fate(move |call| match call.question {
        Question::Insert => Fault::DelayBefore(gate.pause()),
        _ => Fault::Pass,
    });
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), never).await }
    });
    world.pass(secs(2)).await;
    assert!(call.is_finished(), "a call that a request waits for may take 1 s, and one call was enough");
    let result = call.await.expect("no panic");
    assert!(
        matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn an_outcome_that_is_late_is_stored_again_and_not_lost() {
    let world = World::new();
    let engine = world.engine_with(|builder| builder.settings(Settings::default())).await;
    let never_opened = Arc::new(Gate::new());
    let (gate, is_due) = (Arc::clone(&never_opened), AtomicBool::new(true));
    world.fate(move |call| match call.question {
        Question::Swap if is_due.swap(false, Ordering::SeqCst) => Fault::DelayBefore(gate.pause()),
        _ => Fault::Pass,
    });
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), charge).await }
    });
    world.pass(secs(3)).await;
    assert!(call.is_finished(), "the lost call timed out after 1 s, and the next one was answered");
    let done = call.await.expect("no panic").expect("a value");
    assert_eq!((done.value, done.stored, world.record().await.attempt()), (1, true, 1));
}

#[tokio::test]
async fn an_owner_that_cannot_renew_does_not_send() {
    let world = World::new();
    let engine = world.engine().await;
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let call = tokio::spawn({
        let engine = engine.clone();
        let work = |attempt: semel::Attempt| async move {
            gate.await.expect("opened");
            attempt.check().map_err(|lost| Failed::NotApplied(lost.to_string()))?;
            Ok(attempt.number())
        };
        async move { engine.run(intent("k", "5"), work).await }
    });
    world.rest().await;
    world.fate(|call| if call.question == Question::Swap { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(31)).await;
    go.send(()).expect("it waits");
    world.rest().await;
    world.fate(|_| Fault::Pass);
    world.pass(secs(3)).await;
    assert!(matches!(
        call.await.expect("no panic"),
        Err(RunError { reason: RunErrorReason::Failed(Failed::NotApplied(_)), .. })
    ));
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn the_engine_continues_without_its_caller() {
    let world = World::new();
    let engine = world.engine().await;
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), forever).await }
    });
    world.rest().await;
    call.abort();
    drop(call.await);
    world.pass(secs(70)).await;
    assert_eq!(
        world.record().await.state_name(),
        StateName::Unknown,
        "ended by its deadline, not by the caller"
    );
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_lease_is_released() {
    let world = World::new();
    let engine = world.engine().await;
    let policy = Policy::new(Class::External).with(|policy| policy.lease = secs(5)).expect("valid");
    let gate = Arc::new(Gate::new());
    let (slow, due) = (Arc::clone(&gate), AtomicBool::new(true));
    world.fate(move |call| {
        let hit = call.question == Question::Insert && due.swap(false, Ordering::SeqCst);
        if hit { Fault::DelayBefore(slow.pause()) } else { Fault::Pass }
    });
    let call = tokio::spawn({
        let (engine, intent) = (engine.clone(), intent_under(policy, "k", "5").reserved());
        async move { engine.claim(&intent).await }
    });
    world.pass(secs(6)).await;
    gate.open();
    world.rest().await;
    let claimed = call.await.expect("no panic");
    assert!(matches!(claimed, Err(Error::GivenUp(GivenUp::Lapsed))), "{claimed:?}");
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn a_duplicate_gets_the_stores_answer_after_the_owners_lease() {
    let world = World::new();
    let (stalled, other) = (world.engine().await, world.engine().await);
    let policy =
        || Policy::new(Class::Downstream).with(|policy| policy.work_deadline = secs(3600)).expect("valid");
    let running = tokio::spawn({
        let engine = stalled.clone();
        async move { engine.run(intent_under(policy(), "k", "5"), forever).await }
    });
    world.rest().await;
    world.fate(|call| if call.question == Question::Swap { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(31)).await;
    world.fate(|_| Fault::Pass);
    let taken_over = other.run(intent_under(policy(), "k", "5"), charge).await.expect("taken over");
    assert_eq!(taken_over.value, 2);
    let duplicate = stalled.run(intent_under(policy(), "k", "5").waiting(secs(0)), never).await;
    assert!(matches!(&duplicate, Ok(done) if done.replayed && done.value == 2), "{duplicate:?}");
    running.abort();
}

#[tokio::test]
async fn a_duplicate_gets_an_outcome_its_owner_could_not_confirm() {
    let world = World::new();
    let engine = world.engine().await;
    let deaf = Arc::new(AtomicBool::new(true));
    let is_deaf = Arc::clone(&deaf);
    world.fate(move |call| match call.question {
        Question::Swap if is_deaf.load(Ordering::SeqCst) => Fault::FailAfter,
        Question::Get if is_deaf.load(Ordering::SeqCst) => Fault::FailBefore,
        _ => Fault::Pass,
    });
    let owner = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), charge).await }
    });
    world.rest().await;
    assert!(!owner.is_finished(), "it does not know that its finish is stored");
    deaf.store(false, Ordering::SeqCst);
    let duplicate = engine.run(intent("k", "5").waiting(secs(0)), never).await;
    assert!(matches!(&duplicate, Ok(done) if done.replayed && done.value == 1), "{duplicate:?}");
    world.pass(secs(3)).await;
    let done = owner.await.expect("no panic").expect("its own outcome");
    assert!(done.stored && !done.replayed);
}
