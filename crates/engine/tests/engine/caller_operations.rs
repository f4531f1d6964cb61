//! What callers see of their own operations.

use super::world::{World, charge, intent, secs};
use semel::core::key::Key;
use semel::core::outcome::Body;
use semel::core::scope::{Identity, Operation, Scope};
use semel::{CallerOperation, OperatorError};
use std::time::Duration;

fn scope(caller: &str) -> Scope {
    // The owner does not depend on the request.
    Scope::new(Identity::api_key(caller), Operation::named("anything"))
}

#[tokio::test]
async fn an_operation_is_shown_only_to_its_caller_until_it_expires() {
    let world = World::new();
    let engine = world.engine().await;
    let id = engine.run(intent("one", "5"), charge).await.expect("a value").operation_id;
    let key = Key::from_source("one").expect("a key");
    let CallerOperation { outcome, is_key, .. } =
        engine.look_up_own(id, &scope("k-17"), Some(&key)).await.expect("it is the caller's own");
    assert_eq!((outcome.expect("an outcome").body, is_key), (Body::Kept("1".into()), true));
    let other = Key::from_source("two").expect("a key");
    assert!(
        !engine.look_up_own(id, &scope("k-17"), Some(&other)).await.expect("it is the caller's own").is_key
    );
    assert!(!engine.look_up_own(id, &scope("k-17"), None).await.expect("it is the caller's own").is_key);
    for stranger in [scope("k-18"), scope("k-17").in_tenant("acme")] {
        let refused = engine.look_up_own(id, &stranger, Some(&key)).await;
        assert!(matches!(refused, Err(OperatorError::NotFound)), "{refused:?}");
    }
    let named = engine.look_up(id).await.expect("a record").record.operation().clone();
    let by = |operation: &str| (*operation == *named).then(|| scope("k-17"));
    assert!(engine.look_up_own_by(id, Some(&key), by).await.expect("by its own operation's rule").is_key);
    let unidentified = engine.look_up_own_by(id, Some(&key), |_| None).await;
    assert!(matches!(unidentified, Err(OperatorError::NotFound)), "{unidentified:?}");
    world.skip(Duration::from_hours(24) + secs(1)).await;
    assert_eq!(engine.look_up_own(id, &scope("k-17"), None).await.expect("a tombstone").outcome, None);
}
