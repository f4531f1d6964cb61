//! A node whose view may be outdated claims nothing.

use super::world::{REFRESH, World, names_alike, run};
use semel::core::store::Setting;
use semel::secrets::{Error, rotation};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_view_expires_exactly_on_time() {
    run(async {
        let world = World::new();
        let node = world.node("first").await;
        let snapshot = node.view().expect("fresh");
        let almost = REFRESH.good_for.saturating_sub(SECOND);
        world.clock.turn(almost);
        assert!(node.view().is_ok());
        world.clock.turn(SECOND);
        assert!(matches!(node.view(), Err(Error::Stale)));
        node.refresh().await.expect("refreshed");
        assert!(node.view().is_ok());
        assert!(snapshot.check(almost).is_ok());
        let late = snapshot.check(REFRESH.good_for);
        assert!(matches!(late, Err(Error::Stale)), "a snapshot is not refreshed with its node");
    });
}

#[test]
fn a_silent_node_is_removed_but_not_early() {
    run(async {
        let world = World::new();
        let (alive, silent) = (world.node("alive").await, world.node("silent").await);
        alive.refresh().await.expect("seen");
        let registered = async || world.store.settings().await.expect("read").len() - 1;
        world.pass(REFRESH.lapse().saturating_sub(REFRESH.refresh_every), &[&alive]).await;
        assert_eq!(registered().await, 2);
        world.pass(REFRESH.refresh_every, &[&alive]).await;
        assert_eq!(registered().await, 1);
        assert!(matches!(silent.view(), Err(Error::Stale)), "long before");
        silent.refresh().await.expect("it registers again");
        assert_eq!(registered().await, 2);
        assert!(silent.view().is_ok());
    });
}

#[test]
fn a_wall_clock_jump_removes_no_node() {
    run(async {
        // The store's own time does not matter: a registration does not contain it.
        let world = World::new();
        world.node("first").await;
        let registrations = world.store.settings().await.expect("read");
        let (_, registration) = registrations.iter().find(|(name, _)| name != "secrets").expect("registered");
        let text = std::str::from_utf8(registration).expect("text");
        assert_eq!(text, "{\"name\":\"first\",\"beat\":2,\"confirmed\":1,\"lapse_millis\":90000}");
    });
}

#[test]
fn a_node_that_leaves_is_removed_at_once() {
    run(async {
        let world = World::new();
        let node = world.node("first").await;
        node.leave().await.expect("left");
        assert_eq!(world.store.settings().await.expect("read").len(), 1);
        assert!(matches!(node.view(), Err(Error::Stale)));
    });
}

#[test]
fn a_store_that_went_back_is_not_followed() {
    run(async {
        let world = World::new();
        let before = world.node("first").await;
        let earlier = world.setting("secrets").await.expect("stored");
        rotation::announce(world.bounded(), rotation::Next::Generated, &world.dice).await.expect("announced");
        before.refresh().await.expect("refreshed");
        let later = world.setting("secrets").await.expect("stored");
        assert_eq!(
            world.store.set("secrets", Some(later.as_bytes()), Some(earlier.as_bytes())).await.expect("set"),
            Setting::Done
        );
        assert!(matches!(before.refresh().await, Err(Error::WentBack)));
        assert!(before.view().is_err(), "at once");
        assert_eq!(
            world.store.set("secrets", Some(earlier.as_bytes()), None).await.expect("set"),
            Setting::Done
        );
        assert!(matches!(before.refresh().await, Err(Error::WentBack)), "no other secret is generated");
        assert_eq!(world.setting("secrets").await, None);
    });
}

/// The store was emptied, and a node that started afterwards gave it another secret.
#[test]
fn a_secret_without_a_rotation_is_not_adopted() {
    run(async {
        let world = World::new();
        let before = world.node("first").await;
        for (name, value) in world.store.settings().await.expect("read") {
            assert_eq!(world.store.set(&name, Some(&value), None).await.expect("set"), Setting::Done);
        }
        let after = world.node("second").await;
        assert!(!names_alike(&before, &after), "the store no longer has the first secret");
        assert!(matches!(before.refresh().await, Err(Error::WentBack)));
        assert!(before.view().is_err(), "at once");
        after.refresh().await.expect("it continues");
    });
}
