//! Erasing by an operator: nothing runs again, and no node replays it for long.

use super::world::{World, charge, intent, never, secs};
use semel::core::machine::{Erasure, Refusal};
use semel::core::record::StateName;
use semel::core::store::Remnants;
use semel::{OperatorError, RunError, RunErrorReason};

async fn reason(engine: &semel::Engine) -> RunErrorReason {
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
async fn an_erased_record_is_answered_as_expired_and_does_not_run_again() {
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
