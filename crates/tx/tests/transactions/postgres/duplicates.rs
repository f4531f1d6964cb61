//! Many duplicates at once.

use super::world::{World, body, created, insert_order, intent, ran, refused, work};
use semel::RefusalReason;
use semel_tx::postgres::transact;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_duplicates_have_one_effect_on_a_pool_of_ten() {
    let world = World::new().await;
    let nodes = [world.engine().await, world.engine().await];
    let pools = [world.database(5).await, world.database(5).await];
    let runs = Arc::new(AtomicUsize::new(0));
    let (schema, ordering) = (world.schema.clone(), Arc::clone(&runs));
    let work = work(move |tx, local| {
        let schema = schema.clone();
        ordering.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move {
            insert_order(tx, &schema, local).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
            Ok(created(local))
        })
    });
    let wait = Duration::from_secs(20);
    let mut calls = JoinSet::new();
    for number in 0..10_000 {
        let (engine, database) = (nodes[number % 2].clone(), pools[number % 2].clone());
        let work = work.clone();
        calls.spawn(async move { transact(&engine, &database, intent("order-1").waiting(wait), work).await });
    }
    let answers = timeout(wait, calls.join_all()).await.expect("all are answered within the bound");
    assert_eq!(answers.len(), 10_000);
    let mut run = 0;
    for answer in answers {
        let answer = answer.expect("an answer");
        assert_eq!(body(&answer), "created");
        run += usize::from(ran(&answer));
    }
    assert_eq!((run, runs.load(Ordering::SeqCst)), (1, 1), "one attempt, on one node");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_holds_no_connection_and_is_woken_by_the_commit() {
    let world = World::new().await;
    let (first, second) = (world.engine().await, world.engine().await);
    let (owned, other) = (world.database(1).await, world.database(1).await);
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let running = tokio::spawn({
        let (begun, go_on, ordering) = (Arc::clone(&begun), Arc::clone(&go_on), world.ordering());
        let work = work(move |tx, local| {
            let (begun, go_on, ordering) = (Arc::clone(&begun), Arc::clone(&go_on), ordering.clone());
            Box::pin(async move {
                begun.notify_one();
                go_on.notified().await;
                ordering(tx, local).await
            })
        });
        async move { transact(&first, &owned, intent("order-1"), work).await }
    });
    begun.notified().await;
    // At once: in progress, and not blocked by the row that the first has not written yet, nor by its lock.
    let hasty = intent("order-1").waiting(Duration::ZERO);
    let answer = timeout(Duration::from_secs(5), transact(&second, &other, hasty, world.ordering())).await;
    let reason = refused(answer.expect("a prompt answer"));
    assert!(matches!(reason, RefusalReason::InProgress { .. }), "{reason:?}");
    let waiting = tokio::spawn({
        let (second, other, ordering) = (second.clone(), other.clone(), world.ordering());
        let patient = intent("order-1").waiting(Duration::from_secs(30));
        async move { transact(&second, &other, patient, ordering).await }
    });
    // Most of the time its pool's only connection is free for others.
    let mut free = 0;
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(25)).await;
        free += usize::from(other.pool().try_acquire().is_some());
    }
    assert!(free > 20, "the connection was free {free} times out of 40");
    assert!(!waiting.is_finished());
    go_on.notify_one();
    assert!(ran(&running.await.expect("no panic").expect("it ran")));
    let answer = waiting.await.expect("no panic").expect("an answer");
    assert!(!ran(&answer) && body(&answer) == "created");
    assert_eq!(world.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_runs_the_command_after_a_rollback() {
    let world = World::new().await;
    let (first, second) = (world.engine().await, world.engine().await);
    let database = world.database(4).await;
    let begun = Arc::new(Notify::new());
    let failing = tokio::spawn({
        let (begun, database) = (Arc::clone(&begun), database.clone());
        let work = work(move |_, _| {
            let begun = Arc::clone(&begun);
            Box::pin(async move {
                begun.notify_one();
                tokio::time::sleep(Duration::from_millis(300)).await;
                Err("no".into())
            })
        });
        async move { transact(&first, &database, intent("order-1"), work).await }
    });
    begun.notified().await;
    let patient = intent("order-1").waiting(Duration::from_secs(20));
    let answer = transact(&second, &database, patient, world.ordering()).await.expect("it ran");
    assert!(ran(&answer));
    assert!(failing.await.expect("no panic").is_err());
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}
