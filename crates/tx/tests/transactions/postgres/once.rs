//! A command, its effect and its record: together or not at all.

use super::world::{Events, World, body, intent, intent_with, ran, refused, work};
use semel::core::classify::Ending;
use semel::core::record::StateName;
use semel::{Class, Error as EngineError, RefusalReason};
use semel_tx::Error;
use semel_tx::postgres::transact;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

#[tokio::test(flavor = "multi_thread")]
async fn effect_and_record_commit_together_and_once() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(4).await;
    let first = world.order(&engine, &database, "order-1").await.expect("it ran");
    assert!(ran(&first) && first.succeeded, "{first:?}");
    let stored = first.stored.expect("it is durable");
    assert!(stored.state == StateName::Succeeded && stored.expires_at.is_some());
    let again = world.order(&engine, &database, "order-1").await.expect("an answer");
    assert_eq!((again.operation_id, again.stored), (first.operation_id, Some(stored)));
    assert!(again.replayed && body(&again) == "created", "{again:?}");
    assert_eq!(world.orders().await, 1);
    let record = world.record(&engine, &first).await;
    assert_eq!((record.version(), record.attempt(), record.policy().class), (1, 1, Class::Local));
    assert_eq!(record.history().entries().len(), 1, "one write, and no claim before it");
    let counted = ["Claimed", "Finished", "Replayed", "RolledBack"].map(|name| events.of(name));
    assert_eq!(counted, [1, 1, 1, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_node_replays_what_it_never_ran() {
    let world = World::new().await;
    let (first, second) = (world.engine().await, world.engine().await);
    let database = world.database(4).await;
    let ran_by_first = world.order(&first, &database, "order-1").await.expect("it ran");
    let answer = world.order(&second, &world.database(1).await, "order-1").await.expect("an answer");
    assert!(ran(&ran_by_first) && !ran(&answer));
    assert_eq!(body(&answer), "created");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_payload_under_the_same_key_is_refused() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(4).await);
    world.order(&engine, &database, "order-1").await.expect("it ran");
    for engine in [engine, world.engine().await] {
        let other = intent_with("order-1", "6", |_| {});
        let answer = transact(&engine, &database, other, world.ordering()).await;
        assert_eq!(refused(answer), RefusalReason::Mismatch);
    }
    assert_eq!(world.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_class_local_runs_in_a_transaction() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let external = intent_with("order-1", "5", |policy| policy.class = Class::External);
    let refused = transact(&engine, &database, external.clone(), world.ordering()).await;
    assert!(
        matches!(&refused, Err(Error::Engine(EngineError::NotLocalClass(Class::External)))),
        "{refused:?}"
    );
    // Nor can it follow an attempt with an external effect.
    let work = |_| async { semel::WorkResult::from(Ending::NotApplied(None)) };
    drop(engine.execute(external, work).await.expect("it ran"));
    let refused = world.order(&engine, &database, "order-1").await;
    assert!(matches!(&refused, Err(Error::Engine(EngineError::NotLocalRecord(_)))), "{refused:?}");
    assert_eq!((world.orders().await, world.records().await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_caller_leaves_nothing_half_done() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let begun = Arc::new(Notify::new());
    let (begin, ordering) = (Arc::clone(&begun), world.ordering());
    let calling = tokio::spawn({
        let (engine, database) = (engine.clone(), database.clone());
        async move {
            let work = work(move |tx, local| {
                let (begin, ordering) = (Arc::clone(&begin), ordering.clone());
                Box::pin(async move {
                    begin.notify_one();
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    ordering(tx, local).await
                })
            });
            transact(&engine, &database, intent("order-1"), work).await
        }
    });
    begun.notified().await;
    calling.abort();
    assert!(calling.await.expect_err("it was aborted").is_cancelled());
    let answer = world.order(&engine, &database, "order-1").await.expect("an answer");
    assert!(!ran(&answer), "its duplicate waited for it and got its outcome");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}
