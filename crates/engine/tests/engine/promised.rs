//! Work that promises to check before it sends: its deadline and a shutdown leave less in doubt.

use super::world::{World, intent, secs};
use semel::core::record::StateName;
use semel::{Attempt, Engine, Error, Failed, GivenUp, RunError, RunErrorReason};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs work that promises to check, checks if it `sends`, and waits for an answer that the test gives.
fn call(engine: &Engine, sends: bool) -> (JoinHandle<Result<u32, RunError>>, oneshot::Sender<u32>) {
    let (give, answer) = oneshot::channel();
    let engine = engine.clone();
    let work = move |attempt: Attempt| async move {
        attempt.promise_checks();
        if sends {
            attempt.check()?;
        }
        let answer = answer.await.expect("the test gives it, or drops the work");
        assert!(attempt.is_overdue() && attempt.check().is_err(), "nothing more may be sent");
        Ok::<_, Failed>(answer)
    };
    let call = async move { engine.run(intent("k", "5"), work).await.map(|ran| ran.value) };
    (tokio::spawn(call), give)
}

#[tokio::test]
async fn an_attempt_that_never_checked_is_given_back_at_its_deadline() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, _answer) = call(&engine, false);
    world.pass(secs(66)).await;
    let ended = call.await.expect("no panic").expect_err("it overran");
    assert!(matches!(ended.reason, RunErrorReason::NotRun(Error::GivenUp(GivenUp::Overran))), "{ended:?}");
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn an_attempt_that_never_checked_is_given_back_at_a_shutdown() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, _answer) = call(&engine, false);
    world.rest().await;
    let down = tokio::spawn(async move { engine.shutdown(secs(5)).await });
    world.pass(secs(6)).await;
    assert_eq!(down.await.expect("no panic").unstored, 0);
    let ended = call.await.expect("no panic").expect_err("it was cut off");
    assert!(matches!(ended.reason, RunErrorReason::NotRun(Error::GivenUp(GivenUp::Closing))), "{ended:?}");
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

/// The answer had arrived while the process was suspended, and is read right after the deadline.
#[tokio::test]
async fn an_answer_that_is_read_right_after_the_deadline_counts() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, answer) = call(&engine, true);
    world.pass(secs(66)).await;
    answer.send(7).expect("the work still waits");
    world.rest().await;
    assert_eq!(call.await.expect("no panic").expect("the answer"), 7);
    assert_eq!(world.record().await.state_name(), StateName::Succeeded);
}

#[tokio::test]
async fn work_that_may_have_sent_is_in_doubt_soon_after_its_deadline() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, _answer) = call(&engine, true);
    world.pass(secs(68)).await;
    let ended = call.await.expect("no panic").expect_err("it overran");
    assert!(matches!(ended.reason, RunErrorReason::Unknown), "{ended:?}");
    assert!(world.saw("Overran"));
    assert_eq!(world.record().await.state_name(), StateName::Unknown);
}

/// Runs work that waits until it may check, sends, and waits for an answer.
fn call_within(
    engine: &Engine,
    limit: std::time::Duration,
) -> (JoinHandle<Result<u32, RunError>>, oneshot::Sender<()>, oneshot::Sender<u32>) {
    let ((let_go, turn), (give, answer)) = (oneshot::channel(), oneshot::channel());
    let engine = engine.clone();
    let work = move |attempt: Attempt| async move {
        attempt.promise_checks();
        turn.await.expect("the test lets it go, or drops the work");
        attempt.check()?;
        Ok::<_, Failed>(answer.await.expect("the test gives it"))
    };
    let limited = intent("k", "5").beginning_within(limit);
    let call = async move { engine.run(limited, work).await.map(|ran| ran.value) };
    (tokio::spawn(call), let_go, give)
}

#[tokio::test]
async fn an_attempt_that_has_not_begun_within_the_callers_limit_is_given_back() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, _let_go, _give) = call_within(&engine, secs(5));
    world.pass(secs(4)).await;
    assert!(!call.is_finished());
    world.pass(secs(2)).await;
    let ended = call.await.expect("no panic").expect_err("it is late");
    assert!(matches!(ended.reason, RunErrorReason::NotRun(Error::GivenUp(GivenUp::Late))), "{ended:?}");
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
    // The next call is the next attempt, with a limit of its own.
    let (call, let_go, give) = call_within(&engine, secs(5));
    let_go.send(()).expect("it waits");
    give.send(8).expect("it waits");
    assert_eq!(call.await.expect("no panic").expect("the answer"), 8);
}

#[tokio::test]
async fn nothing_that_has_begun_is_cut_off_by_the_callers_limit() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, let_go, give) = call_within(&engine, secs(5));
    let_go.send(()).expect("it waits");
    world.pass(secs(20)).await;
    assert!(!call.is_finished());
    give.send(9).expect("it waits");
    assert_eq!(call.await.expect("no panic").expect("the answer"), 9);
}

#[tokio::test]
async fn a_call_whose_limit_is_over_claims_nothing() {
    let world = World::new();
    let engine = world.engine().await;
    let (call, _let_go, _give) = call_within(&engine, secs(0));
    let ended = call.await.expect("no panic").expect_err("it is late");
    assert!(matches!(ended.reason, RunErrorReason::NotRun(Error::GivenUp(GivenUp::Late))), "{ended:?}");
    assert!(!world.saw("Claimed"));
}
