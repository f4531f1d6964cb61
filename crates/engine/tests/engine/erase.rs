//! Erasing by an operator: nothing runs again, and no node replays the response for long.

use super::world::{World, charge, intent, never, secs};
use semel::core::machine::{Erasure, Refusal};
use semel::core::record::StateName;
use semel::core::store::{Delegate, Pending, Remnants, Store};
use semel::{Engine, OperatorError, RunError, RunErrorReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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
    assert_eq!((erased.record.state_name(), erased.remnants), (StateName::Succeeded, Remnants::None));
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

/// Counts how often it is asked to remove bytes.
struct Scrubbed {
    inner: Arc<dyn Store>,
    count: Arc<AtomicU32>,
}

impl Delegate for Scrubbed {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn scrub(&self) -> Pending<'_, Remnants> {
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
