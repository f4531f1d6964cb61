//! The fence: by which a late worker is told from its successor.

use super::world::{intent_under, on};
use semel::core::policy::{Class, Policy};
use semel::core::store::Store;
use semel::core::time::Time;
use semel::{Claimed, NotYours, memory};
use semel_testkit::FakeClock;
use std::sync::Arc;
use std::time::Duration;

/// The lease is lost to a successor, and the owner learns of it. Handing out the successor's fence then would let the
/// late worker through wherever the successor is let through.
#[tokio::test]
async fn an_owner_that_was_taken_over_keeps_its_own_fence_and_may_not_send() {
    let clock = FakeClock::at(Time::from_millis(1_000_000));
    let store: Arc<dyn Store> = Arc::new(memory::Store::with_clock(Arc::new(clock.clone())));
    let (one, other) = (on(Arc::clone(&store)).await, on(store).await);
    let policy = Policy::new(Class::Downstream);
    let intent = intent_under(policy.clone(), "one", "5");
    let Ok(Claimed::Yours(first)) = one.claim(&intent).await else { panic!("nobody else is there") };
    let (fence, attempt) = (first.fence(), first.attempt());
    clock.advance(policy.lease + Duration::from_millis(1));
    let Ok(Claimed::Yours(second)) = other.claim(&intent).await else { panic!("its lease is dead") };
    assert!(second.fence() > fence);

    assert!(matches!(first.renew().await, Err(NotYours::Lost)));
    assert_eq!((first.fence(), first.attempt()), (fence, attempt));
    assert!(matches!(first.check(), Err(NotYours::Lost)));
}
