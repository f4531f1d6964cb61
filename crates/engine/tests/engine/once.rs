//! One run, however many calls there are and whatever the value.

use super::world::{engine, intent};
use semel::core::classify::Ending;
use semel::core::outcome::{Body, Outcome};
use semel::{Failed, RequestOutcome, RunError, RunErrorReason, WorkResult};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_tasks_on_one_key_run_once() {
    let engine = engine().await;
    let runs = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..10_000)
        .map(|_| {
            let (engine, runs) = (engine.clone(), Arc::clone(&runs));
            tokio::spawn(async move {
                let work = move |_| async move {
                    let run = runs.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok::<_, Failed>(format!("charge {run}"))
                };
                engine.run(intent("one", "5"), work).await.expect("an answer").value
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("no panic"), "charge 0");
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

async fn comes_back_as_itself<T>(key: &str, value: T)
where
    T: serde::Serialize + serde::de::DeserializeOwned + Clone + PartialEq + Debug + Send + 'static,
{
    let engine = engine().await;
    for replayed in [false, true] {
        let value_now = value.clone();
        let work = move |_| async move { Ok::<T, Failed>(value_now) };
        let done = engine.run(intent(key, "5"), work).await.expect("a value");
        assert_eq!((done.value, done.replayed, done.stored), (value.clone(), replayed, true));
    }
}

#[tokio::test]
async fn peer_bug_values_that_look_like_nothing_replay_as_null() {
    comes_back_as_itself("zero", 0_u32).await;
    comes_back_as_itself("text", String::new()).await;
    comes_back_as_itself("list", Vec::<u8>::new()).await;
    comes_back_as_itself("no", false).await;
    comes_back_as_itself("none", None::<u32>).await;
    comes_back_as_itself("unit", ()).await;
    comes_back_as_itself("float", 0.1_f64 + 0.2).await;
}

#[tokio::test]
async fn raw_outcomes_come_back_byte_for_byte() {
    let engine = engine().await;
    let headers =
        [("Location", b"/charges/7".as_slice()), ("link", b"a"), ("link", b"b"), ("x", b"\xff\x00")];
    let outcome = Outcome::http(201, headers, vec![0, 159, 146, 150, 255]);
    let stored = outcome.clone();
    let work = move |_| async move { WorkResult::from(Ending::Succeeded(stored)) };
    assert!(matches!(
        engine.execute(intent("raw", "5"), work).await.expect("ran").outcome,
        RequestOutcome::Ran(_)
    ));
    let never = |_| async { panic!("it has run before") };
    let answer = engine.execute::<_, _, ()>(intent("raw", "5"), never).await.expect("a replay").outcome;
    let RequestOutcome::Replayed(replayed) = answer else { panic!("expected a replay, got {answer:?}") };
    assert_eq!(replayed.outcome, outcome);
    assert!(replayed.stored.expires_at.is_some());
    assert_eq!(replayed.outcome.body, Body::Kept(vec![0, 159, 146, 150, 255].into()));
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused_while_running_too() {
    let engine = engine().await;
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel::<()>();
    let first = {
        let engine = engine.clone();
        tokio::spawn(async move {
            let work = |_| async move {
                began.send(()).expect("somebody waits");
                gate.await.expect("opened");
                Ok::<_, Failed>(1)
            };
            engine.run(intent("bound", "5"), work).await.expect("a value").value
        })
    };
    begun.await.expect("begun");
    let other = || engine.run(intent("bound", "6"), |_| async { Ok::<_, Failed>(2) });
    assert!(matches!(other().await, Err(RunError { reason: RunErrorReason::Mismatch, .. })), "while it runs");
    go.send(()).expect("it waits");
    assert_eq!(first.await.expect("no panic"), 1);
    assert!(matches!(other().await, Err(RunError { reason: RunErrorReason::Mismatch, .. })), "afterwards");
}

#[tokio::test]
async fn an_attempt_without_effect_runs_again_and_a_refused_one_not() {
    let engine = engine().await;
    let fail = |failed: Failed| move |_| async move { Err::<u32, _>(failed) };
    let busy = engine.run(intent("busy", "5"), fail(Failed::NotApplied("busy".into()))).await;
    assert!(
        matches!(busy, Err(RunError { reason: RunErrorReason::Failed(Failed::NotApplied(why)), .. }) if why == "busy")
    );
    let second =
        engine.run(intent("busy", "5"), |attempt: semel::Attempt| async move { Ok(attempt.number()) });
    assert_eq!(second.await.expect("the second attempt").value, 2);

    let refused = engine.run(intent("refused", "5"), fail(Failed::Refused("no such card".into()))).await;
    assert!(matches!(refused, Err(RunError { reason: RunErrorReason::Failed(Failed::Refused(_)), .. })));
    let again = engine.run(intent("refused", "5"), |_| async { Ok(7) }).await;
    assert!(
        matches!(again, Err(RunError { reason: RunErrorReason::Failed(Failed::Refused(why)), .. }) if why == "no such card")
    );

    let in_doubt = engine.run(intent("doubt", "5"), fail(Failed::InDoubt("no answer".into()))).await;
    assert!(matches!(in_doubt, Err(RunError { reason: RunErrorReason::Failed(Failed::InDoubt(_)), .. })));
    let again = engine.run(intent("doubt", "5"), |_| async { Ok(7) }).await;
    assert!(matches!(again, Err(RunError { reason: RunErrorReason::Unknown, .. })));
}

#[tokio::test]
async fn peer_bug_a_client_that_hangs_up_cancels_the_effect() {
    let engine = engine().await;
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let (began, begun) = tokio::sync::oneshot::channel::<()>();
    let call = {
        let engine = engine.clone();
        tokio::spawn(async move {
            let work = |_| async move {
                began.send(()).expect("somebody waits");
                gate.await.expect("opened");
                Ok::<_, Failed>("charged".to_owned())
            };
            engine.run(intent("hang-up", "5"), work).await
        })
    };
    begun.await.expect("begun");
    call.abort();
    assert!(call.await.expect_err("aborted").is_cancelled());
    go.send(()).expect("the work still runs");
    let never = |_| async { panic!("it must not run a second time") };
    let done = engine.run::<String, _, _>(intent("hang-up", "5"), never).await.expect("its outcome");
    assert_eq!((done.value.as_str(), done.replayed), ("charged", true));
}
