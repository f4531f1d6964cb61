//! Erasing by an operator: nothing runs again, and no node replays the response for long.

use super::world::{World, charge, intent, never, secs};
use semel::core::machine::{Erasure, Refusal};
use semel::core::record::StateName;
use semel::core::store::{Delegate, Pending, RemainingCopies, Store};
use semel::{Engine, OperatorError, RunError, RunErrorReason, Settings};
use semel_testkit::faults::{Fault, Gate, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

async fn reason(engine: &Engine) -> RunErrorReason {
    match engine.run(intent("k", "5"), never).await {
        Err(RunError { reason, .. }) => reason,
        Ok(done) => panic!("{done:?}"),
    }
}

#[tokio::test]
async fn an_erased_response_is_not_replayed_and_does_not_run_again() {
    let world = World::new();
    let engine = world.engine().await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    let id = world.record().await.operation_id();
    let erased = engine.erase(id, Erasure::Response, "ann", "asked to").await.expect("erased");
    assert_eq!((erased.record.state_name(), erased.remnants), (StateName::Succeeded, RemainingCopies::None));
    assert!(
        matches!(reason(&engine).await, RunErrorReason::NotRetained),
        "also right after a replay from memory"
    );
}

#[tokio::test]
async fn an_erased_record_is_answered_as_expired() {
    let world = World::new();
    let engine = world.engine().await;
    engine.run(intent("k", "5"), charge).await.expect("a value");
    let id = world.record().await.operation_id();
    engine.erase(id, Erasure::Record, "ann", "asked to").await.expect("erased");
    assert!(matches!(reason(&engine).await, RunErrorReason::Expired));
    let again = engine.erase(id, Erasure::Record, "ann", "asked to").await;
    assert!(matches!(again, Err(OperatorError::Refused(Refusal::WrongState))), "{again:?}");
}

#[tokio::test]
async fn every_node_forgets_an_erased_response_within_a_minute() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    one.run(intent("k", "5"), charge).await.expect("a value");
    assert!(other.run(intent("k", "5"), never).await.expect("a replay").replayed);
    let id = world.record().await.operation_id();
    one.erase(id, Erasure::Response, "ann", "asked to").await.expect("erased");
    world.pass(secs(60)).await;
    assert!(matches!(reason(&other).await, RunErrorReason::NotRetained));
}

/// The answer to the next insert waits for the gate.
fn hold_next_claim(world: &World) -> Gate {
    let (gate, is_held) = (Gate::new(), AtomicBool::new(false));
    let pause = gate.clone();
    world.fate(move |call| {
        let is_first = call.question == Question::Insert && !is_held.swap(true, Ordering::SeqCst);
        if is_first { Fault::DelayAfter(pause.pause()) } else { Fault::Pass }
    });
    gate
}

#[tokio::test]
async fn a_duplicate_that_asks_after_an_erasure_gets_no_earlier_reading() {
    let world = World::new();
    let one = world.engine().await;
    one.run(intent("k", "5"), charge).await.expect("a value");
    let id = world.record().await.operation_id();
    let settings = Settings { cache_bytes_max: 0, ..Settings::default() };
    let other = world.engine_with(|builder| builder.settings(settings)).await;
    let gate = hold_next_claim(&world);
    let ask = |engine: &Engine| {
        let engine = engine.clone();
        tokio::spawn(async move { engine.run(intent("k", "5"), never).await })
    };
    let before = ask(&other);
    world.rest().await;
    assert!(gate.is_waited_for());
    one.erase(id, Erasure::Response, "ann", "asked to").await.expect("erased");
    // Within the timeout of the first request's claim.
    world.pass(Duration::from_millis(500)).await;
    let after = ask(&other);
    world.rest().await;
    gate.open();
    assert!(before.await.expect("no panic").expect("it asked before the erasure").replayed);
    let after = after.await.expect("no panic");
    assert!(matches!(after, Err(RunError { reason: RunErrorReason::NotRetained, .. })), "{after:?}");
}

#[tokio::test]
async fn a_suspended_node_caches_a_reading_from_when_it_was_made() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    one.run(intent("k", "5"), charge).await.expect("a value");
    let id = world.record().await.operation_id();
    let gate = hold_next_claim(&world);
    let suspended = tokio::spawn({
        let other = other.clone();
        async move { other.run(intent("k", "5"), never).await }
    });
    world.rest().await;
    one.erase(id, Erasure::Response, "ann", "asked to").await.expect("erased");
    world.clock.advance(secs(60));
    gate.open();
    drop(suspended.await.expect("no panic"));
    assert!(matches!(reason(&other).await, RunErrorReason::NotRetained));
}

/// Counts how often it is asked to remove bytes.
struct Scrubbed {
    inner: Arc<dyn Store>,
    count: Arc<AtomicU32>,
}

impl Delegate for Scrubbed {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.inner.scrub()
    }
}

/// The process may have been killed between the erasure and the removal.
#[tokio::test]
async fn a_repeated_erasure_removes_the_bytes_again() {
    let (world, count) = (World::new(), Arc::new(AtomicU32::new(0)));
    let store = Scrubbed { inner: world.store.clone(), count: Arc::clone(&count) };
    let engine = Engine::builder(Arc::new(store)).build().await.expect("the store answers");
    engine.run(intent("k", "5"), charge).await.expect("a value");
    let id = world.record().await.operation_id();
    for (erasure, is_refused) in [
        (Erasure::Response, false),
        (Erasure::Response, false),
        (Erasure::Record, false),
        (Erasure::Record, true),
    ] {
        let before = count.load(Ordering::SeqCst);
        let erased = engine.erase(id, erasure, "ann", "asked to").await;
        assert_eq!(erased.is_err(), is_refused, "{erased:?}");
        assert_eq!(count.load(Ordering::SeqCst), before + 1, "{erasure:?}");
    }
}
