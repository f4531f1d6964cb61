//! The fence, which distinguishes a late worker from its successor.

use super::world::{World, intent_under, secs};
use semel::core::policy::{Class, Policy};
use semel::{Claimed, LeaseError};

/// The owner loses its lease to a successor and learns of it. With the successor's fence, the late worker would be
/// accepted wherever the successor is.
#[tokio::test]
async fn a_replaced_owner_keeps_its_fence_and_may_not_send() {
    let world = World::new();
    let (one, other) = (world.engine().await, world.engine().await);
    let policy = Policy::new(Class::Downstream);
    let intent = intent_under(policy.clone(), "one", "5");
    let Ok(Claimed::Leased(first)) = one.claim(&intent).await else { panic!("no other owner") };
    let (fence, attempt) = (first.fence(), first.attempt());
    world.pass(policy.lease + secs(1)).await;
    let Ok(Claimed::Leased(second)) = other.claim(&intent).await else { panic!("its lease has expired") };
    assert!(second.fence() > fence);

    assert!(matches!(first.renew().await, Err(LeaseError::Lost)));
    assert_eq!((first.fence(), first.attempt()), (fence, attempt));
    assert!(matches!(first.check(), Err(LeaseError::Lost)));
}
