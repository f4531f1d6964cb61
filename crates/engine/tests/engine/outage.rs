//! After an outage in which many claims had no answer.

use super::world::{World, intent, never, secs};
use semel::core::record::StateName;
use semel::core::store::{Count, Kind, Store as _};
use semel::{Clock as _, Engine, Error, RunError, RunErrorReason, ShutdownReport};
use semel_testkit::faults::{Call, Fault, Pause, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LOST: usize = 200;

/// How many calls are running, and how many there were at most.
#[derive(Default)]
struct ConcurrentCalls {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl ConcurrentCalls {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn claims_lost_in_an_outage_are_released_gradually() {
    let world = World::new();
    let engine = world.engine().await;
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    world.fate(move |call| match call.question {
        Question::Insert => Fault::FailAfter,
        Question::Get => {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::FailBefore
        }
        _ => Fault::Pass,
    });
    let call = |number: usize| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.run(intent(&format!("key-{number}"), "5"), never).await })
    };
    let calls: Vec<_> = (0..LOST).map(call).collect();
    for call in calls {
        let result = call.await.expect("no panic");
        assert!(
            matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
            "{result:?}"
        );
    }
    world.rest().await;
    assert_eq!(looks.load(Ordering::SeqCst), LOST, "no second search at the same moment");

    let concurrent = Arc::new(ConcurrentCalls::default());
    let (shown, clock) = (Arc::clone(&concurrent), world.clock.clone());
    world.fate(move |call: &Call| {
        if !matches!(call.question, Question::Get | Question::Swap) {
            return Fault::Pass;
        }
        concurrent.begin();
        let (concurrent, pause) = (Arc::clone(&concurrent), clock.sleep(Duration::from_millis(20)));
        Fault::DelayAfter(Pause::until(async move {
            pause.await;
            concurrent.end();
        }))
    });
    world.pass(secs(10)).await;
    world.fate(|_| Fault::Pass);
    let given_back = Count::State(StateName::FailedNotReplayable);
    assert_eq!(world.store.count(given_back, u64::MAX).await.expect("counted").count, LOST as u64);
    let most = shown.most.load(Ordering::SeqCst);
    assert!((2..=16).contains(&most), "{most} calls at once");
}

/// Inserts arrive without an answer, and reads are never answered. Returns the number of reads.
fn readings_hang(world: &World) -> Arc<AtomicUsize> {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    world.fate(move |call| match call.question {
        Question::Insert => Fault::FailAfter,
        Question::Get => {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::DelayBefore(Pause::until(std::future::pending()))
        }
        _ => Fault::Pass,
    });
    looks
}

#[tokio::test]
async fn searching_a_lost_claim_blocks_no_request_or_shutdown() {
    let world = World::new();
    let engine = world.engine().await;
    readings_hang(&world);
    let body = Arc::new(());
    let request = Arc::downgrade(&body);
    let work = move |attempt| async move {
        drop(body);
        never(attempt).await
    };
    let result = engine.run(intent("k", "5"), work);
    let (result, ()) = tokio::join!(result, world.pass(secs(11)));
    assert!(
        matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
        "{result:?}"
    );
    assert!(request.upgrade().is_none(), "the work is dropped with everything in it");

    let hidden = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hidden);
    world.fate(move |call| match call.question {
        Question::Get => Fault::DelayBefore(Pause::until(std::future::pending())),
        Question::Set => {
            counted.fetch_add(1, Ordering::SeqCst);
            Fault::Pass
        }
        _ => Fault::Pass,
    });
    let (report, ()) = tokio::join!(engine.shutdown(Duration::ZERO), world.pass(secs(1)));
    let nothing_ran = ShutdownReport { lost_claims: 1, ..ShutdownReport::default() };
    assert_eq!(report, nothing_ran, "no attempt was running");
    assert_eq!(hidden.load(Ordering::SeqCst), 1, "the node has left");
}

/// An engine with one claim that is still in flight after its request was refused.
async fn engine_with_a_late_claim(world: &World) -> Engine {
    let engine = world.engine().await;
    world.fate(|call| match call.question {
        Question::Insert => Fault::Late,
        Question::Get => Fault::FailBefore,
        _ => Fault::Pass,
    });
    let result = engine.run(intent("k", "5"), never).await;
    assert!(
        matches!(result, Err(RunError { reason: RunErrorReason::NotRun(Error::StoreLost(_)), .. })),
        "{result:?}"
    );
    world.fate(|_| Fault::Pass);
    assert_eq!(world.store.in_flight(), 1);
    engine
}

/// How a shutdown ended, and how long it took.
async fn shut_down(world: &World, engine: &Engine, deadline: Duration) -> (ShutdownReport, Duration) {
    let began = world.clock.uptime();
    let report = engine.shutdown(deadline).await;
    (report, world.clock.uptime().saturating_sub(began))
}

#[tokio::test]
async fn a_shutdown_waits_for_lost_claims_no_longer_than_finish_wait() {
    for (deadline, longest) in [(secs(30), secs(5)), (secs(2), secs(2)), (Duration::ZERO, Duration::ZERO)] {
        let world = World::new();
        let engine = engine_with_a_late_claim(&world).await;
        let ((report, took), ()) = tokio::join!(shut_down(&world, &engine, deadline), world.pass(secs(60)));
        assert!(took <= longest, "{took:?} of {deadline:?}");
        assert_eq!(report, ShutdownReport { lost_claims: 1, ..ShutdownReport::default() });

        // It arrives after all, and runs into its lease.
        world.store.deliver().await.expect("one in flight").expect("the store answers");
        world.skip(secs(60)).await;
        let other = world.engine().await;
        let result = other.run(intent("k", "5"), never).await;
        assert!(matches!(result, Err(RunError { reason: RunErrorReason::Unknown, .. })), "{result:?}");
    }
}

#[tokio::test]
async fn a_lost_claim_that_arrives_during_a_shutdown_is_given_back() {
    let world = World::new();
    let engine = engine_with_a_late_claim(&world).await;
    let arrival = async {
        world.pass(secs(2)).await;
        world.store.deliver().await.expect("one in flight").expect("the store answers");
        world.pass(secs(60)).await;
    };
    let ((report, took), ()) = tokio::join!(shut_down(&world, &engine, secs(30)), arrival);
    assert!(took < secs(5), "{took:?}");
    assert_eq!(report, ShutdownReport::default());
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

#[tokio::test]
async fn claims_lost_in_a_long_outage_are_released_once() {
    let world = World::new();
    let engine = world.engine().await;
    readings_hang(&world);
    let call = |number: usize| {
        let engine = engine.clone();
        tokio::spawn(async move { drop(engine.run(intent(&format!("key-{number}"), "5"), never).await) })
    };
    let calls: Vec<_> = (0..LOST).map(call).collect();
    world.pass(secs(11)).await;
    for call in calls {
        call.await.expect("no panic");
    }
    world.pass(secs(90)).await;
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    world.fate(move |call| {
        if call.question == Question::Get {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        Fault::Pass
    });
    world.pass(secs(300)).await;
    let given_back = Count::State(StateName::FailedNotReplayable);
    assert_eq!(world.store.count(given_back, u64::MAX).await.expect("counted").count, LOST as u64);
    let so_far = looks.load(Ordering::SeqCst);
    world.pass(secs(300)).await;
    let heartbeats = 300 / 10 + 1;
    assert!(looks.load(Ordering::SeqCst) <= so_far + heartbeats, "no more searches");
}

#[tokio::test]
async fn refused_writes_are_noticed_without_a_request_and_so_is_recovery() {
    let world = World::new();
    let engine = world.engine().await;
    world.pass(secs(60)).await;
    assert_eq!(engine.refuses_writes(), None);
    // Reads continue to work.
    world.fate(|call| if call.question.is_write() { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(20)).await;
    let refusing = engine.refuses_writes().expect("the heartbeat has failed");
    assert!(refusing.lasts >= secs(9) && refusing.kind == Kind::Unavailable, "{refusing:?}");
    assert_eq!(world.times_seen("StoreRefuses"), 1, "one report per cause");
    world.fate(|_| Fault::Pass);
    world.pass(secs(2)).await;
    assert_eq!(
        engine.refuses_writes(),
        None,
        "after the first successful write, long before the next heartbeat"
    );
    assert_eq!((world.times_seen("StoreRefuses"), world.times_seen("StoreWrites")), (1, 1));
}
