//! The fence: by which a late worker is told from its successor.

use super::world::{World, intent_under, secs};
use semel::core::policy::{Class, Policy};
use semel::{Claimed, LeaseError};

/// The lease is lost to a successor, and the owner learns of it. Handing out the successor's fence then would let the
/// late worker through wherever the successor is let through.
#[tokio::test]
async fn an_owner_that_was_taken_over_keeps_its_own_fence_and_may_not_send() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let policy = Policy::new(Class::Downstream);
    let intent = intent_under(policy.clone(), "one", "5");
    let Ok(Claimed::Leased(first)) = one.claim(&intent).await else { panic!("nobody else is there") };
    let (fence, attempt) = (first.fence(), first.attempt());
    world.pass(policy.lease + secs(1)).await;
    let Ok(Claimed::Leased(second)) = other.claim(&intent).await else { panic!("its lease is dead") };
    assert!(second.fence() > fence);

    assert!(matches!(first.renew().await, Err(LeaseError::Lost)));
    assert_eq!((first.fence(), first.attempt()), (fence, attempt));
    assert!(matches!(first.check(), Err(LeaseError::Lost)));
}
