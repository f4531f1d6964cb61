//! After an outage in which many claims had no answer.

use super::world::{World, intent, never, secs};
use semel::core::record::StateName;
use semel::core::store::{Count, Kind, Store as _};
use semel::{Clock as _, Error, RunError, RunErrorReason};
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
    assert_eq!(report, semel::ShutdownReport::default(), "no attempt was running");
    assert_eq!(hidden.load(Ordering::SeqCst), 1, "the node has left");
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
