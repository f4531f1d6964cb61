//! Races between background tasks of the engine and callers, stores and other nodes.

use super::world::{World, charge, intent, intent_under, never, secs};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::core::store::Store as _;
use semel::quota::Quotas;
use semel::{
    Attempt, Case, Claimed, Error, Failed, Finding, GivenUp, OperatorError, RunError, RunErrorReason,
};
use semel_testkit::faults::{Call, Fault, Gate, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// Applies a fault to the first call of kind `question`; all others pass.
fn first(
    question: Question,
    fault: impl Fn() -> Fault + Send + Sync,
) -> impl Fn(&Call) -> Fault + Send + Sync {
    let due = AtomicBool::new(true);
    move |call| {
        if call.question == question && due.swap(false, Ordering::SeqCst) { fault() } else { Fault::Pass }
    }
}

/// On several threads: the answer and the rest of the attempt's task run at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_may_be_repeated_as_soon_as_it_is_answered() {
    let world = World::new();
    let engine = world.engine().await;
    for n in 0..1000 {
        let key = format!("k-{n}");
        let in_vain = |_| async { Err::<u32, _>(Failed::NotApplied("the service is down".into())) };
        let refused = engine.run(intent(&key, "5").waiting(secs(0)), in_vain).await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(engine.running(), 0, "it was answered before its run was removed, call {n}");
        let second = engine.run(intent(&key, "5").waiting(secs(0)), charge).await.expect("the next attempt");
        assert_eq!(second.value, 2);
    }
}

#[tokio::test]
async fn a_clone_of_an_abandoned_attempt_cannot_start_it() {
    let world = World::new();
    let engine = world.engine().await;
    let gate = Arc::new(Gate::new());
    let slow = Arc::clone(&gate);
    world.fate(first(Question::Swap, move || Fault::DelayAfter(slow.pause())));
    let sent = Arc::new(AtomicU32::new(0));
    let sends = Arc::clone(&sent);
    let work = move |attempt: Attempt| async move {
        let escaped = tokio::spawn(async move {
            if attempt.start().await.is_ok() {
                sends.fetch_add(1, Ordering::SeqCst);
            }
        });
        escaped.await.expect("no panic");
        Ok::<u32, Failed>(1)
    };
    let policy = Policy::new(Class::External).with(|policy| policy.work_deadline = secs(5)).expect("valid");
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent_under(policy, "k", "5").reserved(), work).await }
    });
    world.pass(secs(6)).await;
    gate.open();
    world.pass(secs(1)).await;
    let result = call.await.expect("no panic");
    assert!(
        matches!(
            result,
            Err(RunError { reason: RunErrorReason::NotRun(Error::GivenUp(GivenUp::Overran)), .. })
        ),
        "{result:?}"
    );
    assert_eq!(sent.load(Ordering::SeqCst), 0, "the attempt was over when its start was stored");
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn retries_do_not_keep_a_doubt_from_being_settled() {
    let world = World::new();
    let asked = Arc::new(AtomicU32::new(0));
    let (count, clock) = (Arc::clone(&asked), world.clock.clone());
    let engine = world
        .engine_with(|builder| {
            builder.reconciler("POST /charges", move |_: Case| {
                count.fetch_add(1, Ordering::SeqCst);
                let answered = semel::Clock::sleep(&clock, secs(3));
                async move {
                    answered.await;
                    Finding::Applied(Some(Outcome::value("7")))
                }
            })
        })
        .await;
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    drop(engine.run(intent("k", "5"), lost).await);
    for _ in 0..6 {
        drop(engine.run(intent("k", "5"), never).await);
        world.pass(secs(1)).await;
    }
    assert_eq!(world.record().await.state_name(), StateName::Succeeded);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "one probe at a time is enough");
}

#[tokio::test]
async fn a_claim_that_arrives_after_its_repeat_is_recognised() {
    let world = World::new();
    let engine = world.engine().await;
    let gate = Arc::new(Gate::new());
    let (slow, inserts) = (Arc::clone(&gate), AtomicU32::new(0));
    world.fate(move |call| match call.question {
        Question::Insert if inserts.fetch_add(1, Ordering::SeqCst) == 0 => Fault::Late,
        Question::Insert => Fault::DelayBefore(slow.pause()),
        _ => Fault::Pass,
    });
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), charge).await }
    });
    world.rest().await;
    world.store.deliver().await.expect("the first is in flight").expect("an answer");
    gate.open();
    world.rest().await;
    assert_eq!(call.await.expect("no panic").expect("its own claim").value, 1);
}

#[tokio::test]
async fn a_claim_that_nobody_waits_for_is_released() {
    let world = World::new();
    let engine = world.engine().await;
    let down = Arc::new(AtomicBool::new(true));
    let is_down = Arc::clone(&down);
    world.fate(move |call| match call.question {
        Question::Insert if is_down.load(Ordering::SeqCst) => Fault::Late,
        Question::Get if is_down.load(Ordering::SeqCst) => Fault::FailBefore,
        _ => Fault::Pass,
    });
    let refused = engine.run(intent("k", "5"), never).await;
    assert!(
        matches!(refused, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
        "{refused:?}"
    );
    down.store(false, Ordering::SeqCst);
    world.pass(secs(5)).await;
    world.store.deliver().await.expect("it is in flight").expect("an answer");
    world.pass(secs(5)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn a_claim_that_appears_just_after_a_long_outage_is_released() {
    let world = World::new();
    let engine = world.engine().await;
    let down = Arc::new(AtomicBool::new(true));
    let reads = Arc::new(AtomicU32::new(0));
    let (is_down, counted) = (Arc::clone(&down), Arc::clone(&reads));
    world.fate(move |call| match call.question {
        Question::Insert if is_down.load(Ordering::SeqCst) => Fault::Late,
        Question::Get if is_down.load(Ordering::SeqCst) => Fault::FailBefore,
        Question::Get => {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::Pass
        }
        _ => Fault::Pass,
    });
    drop(engine.run(intent("k", "5"), never).await);
    world.pass(secs(60)).await;
    down.store(false, Ordering::SeqCst);
    while reads.load(Ordering::SeqCst) == 0 {
        world.pass(Duration::from_millis(200)).await;
    }
    // The first read after the outage did not show it.
    world.store.deliver().await.expect("it is in flight").expect("an answer");
    world.pass(secs(120)).await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn a_store_that_cannot_count_or_find_blocks_nobody() {
    let world = World::new();
    let quotas = Quotas { records_in_total: Some(10), ..Quotas::default() };
    let engine = world.engine_with(|builder| builder.quotas(quotas)).await;
    let gate = Arc::new(Gate::new());
    let shut = Arc::clone(&gate);
    world.fate(move |call| match call.question {
        Question::Count | Question::Find => Fault::DelayBefore(shut.pause()),
        _ => Fault::Pass,
    });
    let calls: Vec<_> = ["a", "b", "c"]
        .map(|key| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.run(intent(key, "5"), never).await })
        })
        .into_iter()
        .collect();
    let looking = tokio::spawn({
        let engine = engine.clone();
        async move { engine.look_up(semel::core::id::OperationId::from_bytes([7; 16])).await }
    });
    world.pass(secs(35)).await;
    for call in calls {
        let result = call.await.expect("no panic");
        assert!(
            matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::Store(_)), .. })),
            "{result:?}"
        );
    }
    assert!(matches!(looking.await.expect("no panic"), Err(OperatorError::Store(_))));
}

#[tokio::test]
async fn a_node_that_has_left_stays_away_and_claims_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    engine.shutdown(secs(1)).await;
    world.pass(secs(60)).await;
    let settings = world.store.settings().await.expect("read");
    assert!(!settings.iter().any(|(name, _)| name.contains("node")), "{settings:?}");
    assert!(matches!(engine.claim(&intent("k", "5")).await, Err(Error::Closing)));
    let result = engine.run(intent("k", "5"), never).await;
    assert!(
        matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::Closing), .. })),
        "{result:?}"
    );
}

#[tokio::test]
async fn a_manual_claim_is_released_if_its_caller_disconnects() {
    let world = World::new();
    let engine = world.engine().await;
    let gate = Arc::new(Gate::new());
    let slow = Arc::clone(&gate);
    world.fate(first(Question::Insert, move || Fault::DelayAfter(slow.pause())));
    let call = tokio::spawn({
        let (engine, intent) = (engine.clone(), intent("k", "5"));
        async move { engine.claim(&intent).await }
    });
    world.rest().await;
    call.abort();
    drop(call.await);
    gate.open();
    world.rest().await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn a_manual_finish_is_stored_if_its_caller_disconnects() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    world.fate(|call| if call.question == Question::Swap { Fault::FailBefore } else { Fault::Pass });
    let ending = semel::core::classify::Ending::Succeeded(Outcome::value("paid"));
    let call = tokio::spawn(async move { lease.finish(ending).await });
    world.pass(secs(1)).await;
    call.abort();
    drop(call.await);
    world.fate(|_| Fault::Pass);
    world.pass(secs(5)).await;
    assert_eq!(world.record().await.state_name(), StateName::Succeeded);
}

#[tokio::test]
async fn a_claim_after_the_shutdown_deadline_is_not_started() {
    let world = World::new();
    let engine = world.engine().await;
    let gate = Arc::new(Gate::new());
    let slow = Arc::clone(&gate);
    world.fate(first(Question::Insert, move || Fault::DelayAfter(slow.pause())));
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), never).await }
    });
    world.rest().await;
    let closing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.shutdown(secs(1)).await }
    });
    world.pass(secs(2)).await;
    gate.open();
    world.pass(secs(1)).await;
    let result = call.await.expect("no panic");
    assert!(
        matches!(
            result,
            Err(RunError { reason: RunErrorReason::NotRun(Error::GivenUp(GivenUp::Closing)), .. })
        ),
        "{result:?}"
    );
    assert_eq!(closing.await.expect("no panic").unstored, 0);
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn an_attempt_without_effect_keeps_an_earlier_doubt() {
    let world = World::new();
    let engine = world.engine().await;
    let ask = || intent_under(Policy::new(Class::Downstream), "k", "5");
    let lost = |_| async { Err::<u32, _>(Failed::InDoubt("no answer".into())) };
    drop(engine.run(ask(), lost).await);
    let busy = |_| async { Err::<u32, _>(Failed::NotApplied("busy".into())) };
    let result = engine.run(ask(), busy).await;
    assert!(matches!(result, Err(RunError { reason: RunErrorReason::Unknown, .. })), "{result:?}");
    assert_eq!(world.record().await.state_name(), StateName::Unknown);
}
