//! Attempts that do not end normally: a panic, a deadline, a shutdown, a dropped guard.

use super::world::{World, charge, forever, intent, intent_under, never, secs};
use semel::core::classify::Ending;
use semel::core::machine::Verdict;
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::core::store::{Count, Store as _};
use semel::{
    Attempt, Call, Claimed, Error, Event, Failed, GivenUp, Observer, RequestOutcome, RunError, RunErrorReason,
};
use semel_testkit::faults::{Fault, Pause, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

async fn panics(_: Attempt) -> Result<u32, Failed> {
    panic!("in the middle of the effect")
}

#[tokio::test]
async fn a_panic_never_releases_a_record_before_its_lease_ends() {
    let world = World::new();
    let engine = world.engine().await;
    assert!(matches!(
        engine.run(intent("k", "5"), panics).await,
        Err(RunError { reason: RunErrorReason::Unknown, .. })
    ));
    assert!(world.saw("Panicked"));
    assert_eq!(world.record().await.state_name(), StateName::Processing);
    let now = engine.run(intent("k", "5").waiting(secs(0)), never).await;
    assert!(matches!(now, Err(RunError { reason: RunErrorReason::InProgress, .. })), "{now:?}");
    world.pass(secs(31)).await;
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Unknown, .. })
    ));
    assert_eq!(world.record().await.state_name(), StateName::Unknown);
}

#[tokio::test]
async fn a_panicked_attempt_is_repeated_where_the_provider_deduplicates() {
    let world = World::new();
    let engine = world.engine().await;
    let ask = || intent_under(Policy::new(Class::Downstream), "k", "5");
    assert!(matches!(engine.run(ask(), panics).await, Err(RunError { reason: RunErrorReason::Unknown, .. })));
    world.pass(secs(31)).await;
    assert_eq!(engine.run(ask(), charge).await.expect("the second attempt").value, 2);
}

#[tokio::test]
async fn an_unstarted_claim_is_released_whatever_happens_meanwhile() {
    let world = World::new();
    let engine = world.engine().await;
    let panicked = engine.run(intent("k", "5").reserved(), panics).await;
    assert!(
        matches!(
            panicked,
            Err(RunError { reason: RunErrorReason::NotRun(Error::GivenUp(GivenUp::Panicked)), .. })
        ),
        "{panicked:?}"
    );
    world.rest().await;
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
    let started = |attempt: Attempt| async move {
        attempt.start().await?;
        Ok(attempt.number())
    };
    let second = engine.run(intent("k", "5").reserved(), started).await.expect("the next attempt");
    assert_eq!((second.value, world.record().await.state_name()), (2, StateName::Succeeded));
}

#[tokio::test]
async fn work_past_its_deadline_is_dropped_as_uncertain() {
    let world = World::new();
    let engine = world.engine().await;
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), forever).await }
    });
    world.pass(secs(64)).await;
    assert_eq!(world.record().await.state_name(), StateName::Processing, "renewed while it runs");
    world.pass(secs(2)).await;
    assert!(matches!(call.await.expect("no panic"), Err(RunError { reason: RunErrorReason::Unknown, .. })));
    assert_eq!(world.record().await.state_name(), StateName::Unknown);
    assert!(world.saw("Overran"));
}

#[tokio::test]
async fn after_the_deadline_the_caller_gets_an_earlier_verdict() {
    let world = World::new();
    let engine = world.engine().await;
    let call = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), forever).await }
    });
    world.rest().await;
    // Its renewals do not arrive, as if its machine were suspended.
    world.fate(|call| if call.question == Question::Swap { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(31)).await;
    world.fate(|_| Fault::Pass);
    let other = world.engine().await;
    let result = other.run(intent("k", "5").waiting(secs(0)), never).await;
    assert!(matches!(result, Err(RunError { reason: RunErrorReason::Unknown, .. })), "{result:?}");
    let applied = Verdict::Applied(Some(Outcome::value("7")));
    let id = world.record().await.operation_id();
    other.resolve(id, applied, "ann", "seen in the bank's list").await.expect("settled");
    world.pass(secs(60)).await;
    assert!(world.saw("Overran"));
    assert_eq!(call.await.expect("no panic").expect("what the record says").value, 7);
}

#[tokio::test]
async fn the_lease_of_a_slow_claim_is_renewed_at_once() {
    let world = World::new();
    let engine = world.engine().await;
    let clock = world.clock.clone();
    let is_claimed = AtomicBool::new(false);
    // The answer to the claim is lost after 10 s, and the search for it takes 9 s: of 25 s, 6 s are left.
    world.fate(move |call| match call.question {
        Question::Insert => Fault::DelayAfter(Pause::until(std::future::pending())),
        Question::Get if !is_claimed.swap(true, Ordering::SeqCst) => {
            Fault::DelayAfter(Pause::until(semel::Clock::sleep(&clock, secs(9))))
        }
        _ => Fault::Pass,
    });
    let policy = Policy::new(Class::External).with(|policy| policy.lease = secs(25)).expect("valid");
    let _call = tokio::spawn(async move { engine.run(intent_under(policy, "k", "5"), forever).await });
    world.pass(secs(35)).await;
    assert!(world.saw("Claimed") && !world.saw("LeaseLost"));
    assert_eq!(
        world.record().await.state_name(),
        StateName::Processing,
        "10 s after the lease that was granted"
    );
}

#[tokio::test]
async fn a_running_attempt_keeps_its_lease() {
    let world = World::new();
    let engine = world.engine().await;
    let policy =
        Policy::new(Class::External).with(|policy| policy.work_deadline = secs(3600)).expect("valid");
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let call = tokio::spawn({
        let engine = engine.clone();
        let work = |attempt: Attempt| async move {
            gate.await.expect("opened");
            attempt.check()?;
            Ok(attempt.number())
        };
        async move { engine.run(intent_under(policy, "k", "5"), work).await }
    });
    world.pass(secs(600)).await;
    let other = world.engine().await;
    let result = other.run(intent("k", "5").waiting(secs(0)), never).await;
    assert!(matches!(result, Err(RunError { reason: RunErrorReason::InProgress, .. })), "{result:?}");
    go.send(()).expect("it waits");
    assert_eq!(call.await.expect("no panic").expect("a value").value, 1);
    assert!(!world.saw("LeaseLost"));
}

#[tokio::test]
async fn a_dropped_lease_releases_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    drop(lease);
    world.pass(secs(29)).await;
    let result = engine.run(intent("k", "5").waiting(secs(0)), never).await;
    assert!(matches!(result, Err(RunError { reason: RunErrorReason::InProgress, .. })), "{result:?}");
    world.pass(secs(2)).await;
    assert!(matches!(
        engine.run(intent("k", "5"), never).await,
        Err(RunError { reason: RunErrorReason::Unknown, .. })
    ));
}

#[tokio::test]
async fn a_worker_may_renew_and_finish_from_another_request() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    let (id, token) = (lease.id(), lease.token());
    world.pass(secs(20)).await;
    lease.renew().await.expect("still ours");
    world.pass(secs(20)).await;
    lease.check().expect("renewed");
    drop(lease);
    let lease = engine.lease(id, token).await.expect("an answer").expect("still that attempt");
    let paid = Outcome::value("paid");
    let stored = lease.finish(Ending::Succeeded(paid.clone())).await.expect("stored");
    assert_eq!(stored.state, StateName::Succeeded);
    let Claimed::Answered(answer) = engine.claim(&intent("k", "5")).await.expect("an answer") else {
        panic!("finished")
    };
    assert!(matches!(answer.outcome, RequestOutcome::Replayed(replayed) if replayed.outcome == paid));
}

#[tokio::test]
async fn a_worker_presumed_dead_can_still_finish_its_attempt() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    world.pass(secs(40)).await;
    assert_eq!(world.record().await.state_name(), StateName::Unknown, "the sweeper has run");
    assert!(lease.check().is_err() && lease.renew().await.is_err());
    lease.finish(Ending::Succeeded(Outcome::value("paid"))).await.expect("it contains the true outcome");
    assert_eq!(world.record().await.state_name(), StateName::Succeeded);
}

#[tokio::test]
async fn a_replaced_worker_gets_its_successors_outcome() {
    let world = World::new();
    let engine = world.engine().await;
    let ask = || intent_under(Policy::new(Class::Downstream), "k", "5");
    let Claimed::Leased(stale) = engine.claim(&ask()).await.expect("claimed") else {
        panic!("no other owner")
    };
    world.pass(secs(40)).await;
    assert_eq!(engine.run(ask(), charge).await.expect("taken over").value, 2);
    let result = stale.finish(Ending::Succeeded(Outcome::value("99"))).await.expect_err("fenced");
    assert!(
        matches!(&result, RequestOutcome::Replayed(replayed) if replayed.outcome == Outcome::value("2")),
        "{result:?}"
    );
    assert!(world.saw("Fenced") && world.saw("differs: true"));
}

#[tokio::test]
async fn an_operator_who_knows_no_response_does_not_contradict_the_worker() {
    let world = World::new();
    let engine = world.engine().await;
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else {
        panic!("no other owner")
    };
    world.pass(secs(40)).await;
    let id = world.record().await.operation_id();
    engine.resolve(id, Verdict::Applied(None), "operator", "seen").await.expect("resolved");
    lease.finish(Ending::Succeeded(Outcome::value("paid"))).await.expect_err("settled");
    assert!(world.saw("Fenced") && world.saw("differs: false") && !world.saw("differs: true"));
}

#[tokio::test]
async fn a_shutdown_waits_for_running_work_and_takes_none() {
    let world = World::new();
    let engine = world.engine().await;
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let call = tokio::spawn({
        let engine = engine.clone();
        let work = |attempt: Attempt| async move {
            gate.await.expect("opened");
            Ok::<_, Failed>(attempt.number())
        };
        async move { engine.run(intent("k", "5"), work).await }
    });
    world.rest().await;
    let closing = tokio::spawn({
        let engine = engine.clone();
        async move { engine.shutdown(secs(30)).await }
    });
    world.rest().await;
    let refused = engine.run(intent("other", "5"), never).await;
    assert!(
        matches!(refused, Err(RunError { reason: RunErrorReason::NotRun(Error::Closing), .. })),
        "{refused:?}"
    );
    go.send(()).expect("it waits");
    assert_eq!(call.await.expect("no panic").expect("a value").value, 1);
    let report = closing.await.expect("no panic");
    assert_eq!((report.running, report.cut_off, report.unstored), (1, 0, 0));
}

#[tokio::test]
async fn work_cut_off_by_a_shutdown_says_so() {
    for (reserved, state) in [(false, StateName::Unknown), (true, StateName::FailedNotReplayable)] {
        let world = World::new();
        let engine = world.engine().await;
        let ask = if reserved { intent("k", "5").reserved() } else { intent("k", "5") };
        let call = tokio::spawn({
            let engine = engine.clone();
            async move { engine.run(ask, forever).await }
        });
        world.rest().await;
        let closing = tokio::spawn({
            let engine = engine.clone();
            async move { engine.shutdown(secs(3)).await }
        });
        world.pass(secs(4)).await;
        let report = closing.await.expect("no panic");
        assert_eq!((report.running, report.cut_off, report.unstored), (1, 1, 0));
        let result = call.await.expect("no panic").expect_err("cut off");
        match result {
            RunError { reason: RunErrorReason::Unknown, .. } => assert!(!reserved),
            RunError { reason: RunErrorReason::NotRun(Error::GivenUp(GivenUp::Closing)), .. } => {
                assert!(reserved);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.record().await.state_name(), state);
    }
}

/// Panics on the first renewal, and counts the lost leases.
struct Clumsy {
    has_panicked: AtomicBool,
    lost: Arc<AtomicUsize>,
}

impl Observer for Clumsy {
    fn observe(&self, event: &Event<'_>) {
        match event {
            Event::LeaseLost { .. } => drop(self.lost.fetch_add(1, Ordering::SeqCst)),
            Event::Asked { call: Call::Swap, .. } => {
                assert!(self.has_panicked.swap(true, Ordering::SeqCst), "a panic for the test");
            }
            _ => {}
        }
    }
}

#[tokio::test]
async fn an_observer_panic_during_renewal_loses_only_that_lease() {
    let world = World::new();
    let lost = Arc::new(AtomicUsize::new(0));
    let clumsy = Clumsy { has_panicked: AtomicBool::new(false), lost: Arc::clone(&lost) };
    let engine = world.engine_with(|builder| builder.observer(clumsy)).await;
    let policy =
        Policy::new(Class::External).with(|policy| policy.work_deadline = secs(3600)).expect("valid");
    for key in ["first", "second"] {
        let (engine, intent) = (engine.clone(), intent_under(policy.clone(), key, "5"));
        drop(tokio::spawn(async move { engine.run(intent, forever).await }));
    }
    world.pass(secs(60)).await;
    assert_eq!(lost.load(Ordering::SeqCst), 1);
    let count = |state| world.store.count(Count::State(state), u64::MAX);
    let running = count(StateName::Processing).await.expect("counted").count;
    let unknown = count(StateName::Unknown).await.expect("counted").count;
    assert_eq!((running, unknown), (1, 1), "the other is renewed as before");
}

#[tokio::test]
async fn an_error_names_the_operation_that_an_operator_looks_up() {
    let world = World::new();
    let engine = world.engine().await;
    let in_doubt = |_: Attempt| async { Err::<u32, _>(Failed::InDoubt("the line went dead".to_owned())) };
    let error = engine.run(intent("k", "5"), in_doubt).await.expect_err("the outcome is unknown");
    let id = error.operation_id.expect("its name");
    assert_eq!(engine.look_up(id).await.expect("found").record.state_name(), StateName::Unknown);
    assert!(error.to_string().ends_with(&format!("(operation {id})")), "{error}");
    let source = std::error::Error::source(&error).expect("the reason of the work").to_string();
    assert!(source.contains("the line went dead"), "{source}");
    let again = engine.run(intent("k", "5"), never).await.expect_err("still");
    assert_eq!(again.operation_id, Some(id));
}
