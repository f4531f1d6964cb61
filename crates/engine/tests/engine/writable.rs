//! A store that refuses writes: when that is known, and how soon all works again.

use super::world::{World, charge, intent, never, secs};
use semel::Engine;
use semel::core::store::{Count, Kind, Store as _};
use semel_testkit::faults::{Call, Fault, Question};

/// Everything is refused except settings, which are small.
fn only_settings(call: &Call) -> Fault {
    if call.question.is_write() && call.question != Question::Set { Fault::FailBefore } else { Fault::Pass }
}

async fn is_empty(world: &World) -> bool {
    let count = async |what| world.store.count(what, u64::MAX).await.expect("counted").count;
    (count(Count::Records).await, count(Count::Markers).await) == (0, 0)
}

/// Waits until the engine knows that the store accepts writes, without a request.
async fn recovers(world: &World, engine: &Engine) {
    world.fate(|_| Fault::Pass);
    world.pass(secs(2)).await;
    assert_eq!(engine.refuses_writes(), None);
}

#[tokio::test]
async fn a_written_setting_does_not_hide_that_records_are_refused() {
    let world = World::new();
    let engine = world.engine().await;
    world.pass(secs(5)).await;
    world.fate(only_settings);
    engine.run(intent("k", "5"), never).await.expect_err("no claim");
    for _ in 0..6 {
        world.pass(secs(10)).await;
        assert!(engine.refuses_writes().is_some(), "a heartbeat was written");
    }
    let refusing = engine.refuses_writes().expect("it lasts");
    assert!(refusing.lasts >= secs(60) && refusing.kind == Kind::Unavailable, "{refusing:?}");
    recovers(&world, &engine).await;
    assert_eq!((world.times_seen("StoreRefuses"), world.times_seen("StoreWrites")), (1, 1));
    assert!(is_empty(&world).await);
}

#[tokio::test]
async fn a_node_without_requests_knows_that_records_are_refused() {
    let world = World::new();
    world.fate(only_settings);
    let started = world.engine().await;
    world.pass(secs(1)).await;
    assert!(started.refuses_writes().is_some(), "since before its start");
    recovers(&world, &started).await;
    world.pass(secs(60)).await;
    assert_eq!(started.refuses_writes(), None);
    world.fate(only_settings);
    world.pass(secs(11)).await;
    assert!(started.refuses_writes().is_some(), "since it runs");
    recovers(&world, &started).await;
    assert!(is_empty(&world).await);
}

#[tokio::test]
async fn one_server_that_refuses_records_is_not_hidden_by_the_others() {
    let world = World::new();
    let engine = world.engine().await;
    // The part of the store with these IDs.
    let is_refused = |call: &Call| call.id.is_some_and(|id| id.as_bytes()[31] % 2 == 1);
    world.fate(move |call| if is_refused(call) { only_settings(call) } else { Fault::Pass });
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..40 {
        match engine.run(intent(&format!("key-{number}"), "5"), charge).await {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
        world.pass(secs(1)).await;
    }
    assert!(accepted > 5 && refused > 5, "{accepted} and {refused}");
    let refusing = engine.refuses_writes().expect("a part of the store refuses records");
    assert!(refusing.lasts >= secs(20), "{refusing:?}");
    recovers(&world, &engine).await;
    assert_eq!((world.times_seen("StoreRefuses"), world.times_seen("StoreWrites")), (1, 1));
}

#[tokio::test]
async fn a_store_that_loses_a_few_answers_accepts_writes() {
    let world = World::new();
    let engine = world.engine().await;
    // One write of thirty gets no answer.
    world.fate(|call| {
        if call.question.is_write() && call.number % 30 == 7 { Fault::FailAfter } else { Fault::Pass }
    });
    for number in 0..60 {
        drop(engine.run(intent(&format!("key-{number}"), "5"), charge).await);
        world.pass(secs(1)).await;
        let refusing = engine.refuses_writes();
        assert!(refusing.is_none_or(|refusing| refusing.lasts <= secs(3)), "{refusing:?}");
    }
    assert!(world.saw("StoreRefuses"), "none was a record's write");
}

#[tokio::test]
async fn entries_that_a_killed_node_left_behind_are_removed() {
    let world = World::new();
    let engine = world.engine().await;
    world.fate(only_settings);
    engine.run(intent("k", "5"), never).await.expect_err("no claim");
    // Entries are inserted, and not removed.
    world.fate(|call| if call.question == Question::RemoveMarker { Fault::FailBefore } else { Fault::Pass });
    world.pass(secs(5)).await;
    assert!(!is_empty(&world).await);
    engine.shutdown(secs(1)).await;
    world.fate(only_settings);
    let next = world.engine().await;
    next.run(intent("k", "5"), never).await.expect_err("no claim");
    recovers(&world, &next).await;
    assert!(is_empty(&world).await);
}

#[tokio::test]
async fn commands_run_as_soon_as_the_store_accepts_writes_again() {
    for lasts in 36..46 {
        let world = World::new();
        let engine = world.engine().await;
        world.pass(secs(7)).await;
        world.fate(|call| if call.question.is_write() { Fault::FailBefore } else { Fault::Pass });
        world.pass(secs(lasts)).await;
        engine.run(intent("k", "5"), never).await.expect_err("no claim");
        assert!(!engine.has_current_secret(), "too old, and not renewed");
        recovers(&world, &engine).await;
        assert!(engine.has_current_secret());
        engine.run(intent("k", "5"), charge).await.expect("a value");
        assert_eq!(world.times_seen("SecretsCurrent"), 1);
    }
}
