//! What follows an outage in which many claims were lost sight of.

use super::world::{World, intent, never, secs};
use semel::core::record::StateName;
use semel::core::store::{Count, Kind, Store as _};
use semel::{Clock as _, Error, RunError, RunErrorReason};
use semel_testkit::faults::{Call, Fault, Pause, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LOST: usize = 200;

/// How many calls are under way, and how many were at most.
#[derive(Default)]
struct UnderWay {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl UnderWay {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn claims_lost_in_an_outage_are_given_back_a_few_at_a_time() {
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
        let told = call.await.expect("no panic");
        assert!(
            matches!(told, Err(RunError { reason: RunErrorReason::NotRun(Error::LostSight(_)), .. })),
            "{told:?}"
        );
    }
    world.rest().await;
    assert_eq!(looks.load(Ordering::SeqCst), LOST, "nobody looks a second time in the same moment");

    let under_way = Arc::new(UnderWay::default());
    let (shown, clock) = (Arc::clone(&under_way), world.clock.clone());
    world.fate(move |call: &Call| {
        if !matches!(call.question, Question::Get | Question::Swap) {
            return Fault::Pass;
        }
        under_way.begin();
        let (under_way, nap) = (Arc::clone(&under_way), clock.sleep(Duration::from_millis(20)));
        Fault::DelayAfter(Pause::until(async move {
            nap.await;
            under_way.end();
        }))
    });
    world.pass(secs(10)).await;
    world.fate(|_| Fault::Pass);
    let given_back = Count::State(StateName::FailedNotReplayable);
    assert_eq!(world.store.count(given_back, u64::MAX).await.expect("counted").count, LOST as u64);
    let most = shown.most.load(Ordering::SeqCst);
    assert!((2..=16).contains(&most), "{most} calls at once");
}

/// Inserts arrive and are not answered, and no reading is ever answered. Tells how many readings were asked for.
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
async fn a_claim_that_is_looked_for_holds_neither_its_request_nor_a_shutdown() {
    let world = World::new();
    let engine = world.engine().await;
    readings_hang(&world);
    let body = Arc::new(());
    let request = Arc::downgrade(&body);
    let work = move |attempt| async move {
        drop(body);
        never(attempt).await
    };
    let told = engine.run(intent("k", "5"), work);
    let (told, ()) = tokio::join!(told, world.pass(secs(11)));
    assert!(
        matches!(told, Err(RunError { reason: RunErrorReason::NotRun(Error::LostSight(_)), .. })),
        "{told:?}"
    );
    assert!(request.upgrade().is_none(), "the work is dropped, and what it held");

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
    let (farewell, ()) = tokio::join!(engine.shutdown(Duration::ZERO), world.pass(secs(1)));
    assert_eq!(farewell, semel::ShutdownReport::default(), "no attempt was under way");
    assert_eq!(hidden.load(Ordering::SeqCst), 1, "the node has signed off");
}

#[tokio::test]
async fn claims_lost_in_a_long_outage_are_given_back_once() {
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
    assert!(looks.load(Ordering::SeqCst) <= so_far + heartbeats, "nobody looks any more");
}

#[tokio::test]
async fn refused_writes_are_noticed_without_a_request_and_so_is_recovery() {
    let world = World::new();
    let engine = world.engine().await;
    world.pass(secs(60)).await;
    assert_eq!(engine.refuses_writes(), None);
    // Reads go on.
    world.fate(|call| if call.question.is_write() { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(20)).await;
    let refusing = engine.refuses_writes().expect("the heartbeat has failed");
    assert!(refusing.lasts >= secs(9) && refusing.kind == Kind::Unavailable, "{refusing:?}");
    assert_eq!(world.times_seen("StoreRefuses"), 1, "one word for one cause");
    world.fate(|_| Fault::Pass);
    world.pass(secs(2)).await;
    assert_eq!(
        engine.refuses_writes(),
        None,
        "the first write that succeeds, long before the next heartbeat is due"
    );
    assert_eq!((world.times_seen("StoreRefuses"), world.times_seen("StoreWrites")), (1, 1));
}
