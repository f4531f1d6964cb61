//! Work that blocks its thread keeps its lease, but not past its deadline.

use super::world::{World, intent, intent_under, secs};
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::{Attempt, Engine, Failed, memory};
use semel_testkit::faults::{Call, Fault, Faulty, Gate, Question};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::sync::oneshot;

/// Only ends a test that has failed.
const TOO_LONG: Duration = secs(60);

/// Reports each call of kind `question`, and lets all calls pass.
fn reporting(question: Question) -> (impl Fn(&Call) -> Fault + Send + Sync + 'static, mpsc::Receiver<()>) {
    let (report, reports) = mpsc::channel();
    let fate = move |call: &Call| {
        if call.question == question {
            // The test may have stopped listening.
            let _ = report.send(());
        }
        Fault::Pass
    };
    (fate, reports)
}

/// Waits until every task is idle: the one remaining thread runs these after everything that was woken before.
async fn settle() {
    for _ in 0..100 {
        tokio::spawn(async {}).await.expect("it runs");
    }
}

/// Work that reports its start and then blocks its thread until the test ends it.
struct Blocking {
    started: oneshot::Sender<()>,
    over: mpsc::Receiver<()>,
}

impl Blocking {
    fn new() -> (Self, oneshot::Receiver<()>, mpsc::Sender<()>) {
        let ((started, has_started), (end, over)) = (oneshot::channel(), mpsc::channel());
        (Self { started, over }, has_started, end)
    }

    #[expect(clippy::unused_async, reason = "work is a future, and this one never yields")]
    async fn work(self, attempt: Attempt) -> Result<u32, Failed> {
        self.started.send(()).expect("the test waits for it");
        self.over.recv_timeout(TOO_LONG).expect("the test ends it");
        Ok(attempt.number())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_its_work_keeps_its_thread() {
    let world = World::new();
    let engine = world.engine().await;
    let (fate, renewed) = reporting(Question::Swap);
    world.fate(fate);
    let (blocking, started, end) = Blocking::new();
    let run =
        tokio::spawn(async move { engine.run(intent("k", "5"), |attempt| blocking.work(attempt)).await });
    started.await.expect("the work starts");
    // The work can start while the renewer still computes how long to sleep, on the other thread.
    settle().await;
    for _ in 0..5 {
        world.clock.advance(secs(10));
        renewed.recv_timeout(TOO_LONG).expect("a renewal, although the work has not yielded");
        settle().await;
    }
    end.send(()).expect("the work waits");
    assert_eq!(run.await.expect("no panic").expect("it ran").value, 1);
    assert_eq!(world.record().await.state_name(), StateName::Succeeded, "50 s of work under leases of 30 s");
    assert!(!world.saw("LeaseLost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_past_its_deadline_is_not_renewed() {
    let world = World::new();
    let engine = world.engine().await;
    let (fate, renewed) = reporting(Question::Swap);
    world.fate(fate);
    let (blocking, started, end) = Blocking::new();
    let run =
        tokio::spawn(async move { engine.run(intent("k", "5"), |attempt| blocking.work(attempt)).await });
    started.await.expect("the work starts");
    // The work can start while the renewer still computes how long to sleep, on the other thread.
    settle().await;
    for _ in 0..6 {
        world.clock.advance(secs(10));
        renewed.recv_timeout(TOO_LONG).expect("a renewal");
        settle().await;
    }
    // Past its deadline of 65 s, but within the lease that was last renewed at 60 s.
    for _ in 0..2 {
        world.clock.advance(secs(10));
        settle().await;
    }
    assert_eq!(renewed.try_iter().count(), 0, "no renewal past the deadline");
    end.send(()).expect("the work waits");
    assert_eq!(run.await.expect("no panic").expect("no takeover yet").value, 1);
}

/// A runtime whose timer stands still: the only awake thread is woken by that timer and then blocked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_renewed_while_the_runtimes_timer_is_blocked() {
    let (fate, renewed) = reporting(Question::Swap);
    let store = Arc::new(Faulty::new(Arc::new(memory::Store::new()), fate));
    let engine = Engine::builder(store).build().await.expect("the store answers");
    let policy = Policy::new(Class::External).with(|policy| policy.lease = secs(3)).expect("valid");
    let work = |attempt: Attempt| async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        for _ in 0..3 {
            renewed.recv_timeout(TOO_LONG).expect("a renewal, although the work has not yielded");
        }
        Ok::<_, Failed>(attempt.number())
    };
    assert_eq!(engine.run(intent_under(policy, "k", "5"), work).await.expect("it ran").value, 1);
}

#[tokio::test]
async fn a_running_renewal_does_not_delay_the_end_and_none_follows() {
    let world = World::new();
    let engine = world.engine().await;
    let (gate, swaps) = (Gate::new(), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (gate.clone(), Arc::clone(&swaps));
    world.fate(move |call| {
        let is_swap = call.question == Question::Swap;
        if is_swap && counted.fetch_add(1, Ordering::SeqCst) == 0 {
            return Fault::DelayBefore(held.pause());
        }
        Fault::Pass
    });
    let (end, over) = oneshot::channel::<()>();
    let work = move |attempt: Attempt| async move {
        over.await.expect("the test ends it");
        Ok::<_, Failed>(attempt.number())
    };
    let run = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent("k", "5"), work).await }
    });
    world.pass(secs(11)).await;
    assert!(gate.is_waited_for(), "a renewal is running");
    end.send(()).expect("the work waits");
    world.rest().await;
    assert!(run.is_finished(), "its ending is stored at once");
    assert_eq!(run.await.expect("no panic").expect("it ran").value, 1);
    gate.open();
    world.pass(secs(60)).await;
    assert_eq!(swaps.load(Ordering::SeqCst), 2, "the renewal that was dropped, and the ending");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocking_work_that_starts_late_is_renewed_again() {
    let world = World::new();
    let engine = world.engine().await;
    let policy = Policy::new(Class::External).with(|policy| policy.work_deadline = secs(60)).expect("valid");
    let ((started, has_started), (end, over)) = (oneshot::channel(), mpsc::channel::<()>());
    let work = move |attempt: Attempt| async move {
        let number = attempt.number();
        started.send(attempt).expect("the test waits for it");
        over.recv_timeout(TOO_LONG).expect("the test ends it");
        Ok::<_, Failed>(number)
    };
    let run = tokio::spawn(async move { engine.run(intent_under(policy, "k", "5").reserved(), work).await });
    let attempt = has_started.await.expect("the work starts");
    for _ in 0..7 {
        settle().await;
        world.clock.advance(secs(10));
    }
    settle().await;
    // The renewal at 50 s was the last one, and its lease is valid.
    attempt.start().await.expect("it starts at 70 s");
    settle().await;
    let (fate, renewed) = reporting(Question::Swap);
    world.fate(fate);
    for _ in 0..4 {
        world.clock.advance(secs(10));
        renewed.recv_timeout(TOO_LONG).expect("a renewal past the first deadline");
        settle().await;
    }
    end.send(()).expect("the work waits");
    assert_eq!(run.await.expect("no panic").expect("it ran").value, 1);
    assert_eq!(world.record().await.state_name(), StateName::Succeeded);
}
