//! Wrong solutions, each beside the right one: the damage that the guide warns of.

use crate::world::{Lite, World, effect, effects, message, process, with_effects};
use semel_core::id::OperationId;
use semel_tx::patterns::{
    Binding, BusinessReferences, Counter, Inbox, InboxResult, InsertOrGet, Message, MessageId, NaturalTable,
    PatternError,
};
use std::collections::BTreeSet;
use std::time::Duration;

fn inbox() -> Inbox {
    Inbox::new("billing")
}

/// The mark is committed first, then the consumer dies. The duplicate finds the key, takes that for success,
/// and the message is lost.
#[tokio::test]
async fn an_existing_key_does_not_prove_success() {
    let world: Lite = with_effects().await;
    world.sql("CREATE TABLE seen (id text PRIMARY KEY)").await;
    world.sql("INSERT INTO seen VALUES ('m-1')").await;
    // kill -9 here
    let is_new = world.sql("INSERT INTO seen VALUES ('m-1') ON CONFLICT DO NOTHING").await == 1;
    assert!(!is_new, "so it is acknowledged");
    assert_eq!(effects(&world).await, 0, "and nothing ever happened");
    // The same crash with the mark in the transaction of the effect:
    let mut transaction = world.begin().await;
    inbox()
        .once(&mut *transaction, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) }))
        .await
        .expect("ran");
    drop(transaction);
    assert_eq!(
        process(&world, &inbox(), &message("m-1", "5")).await.expect("ran"),
        InboxResult::Processed(())
    );
    assert_eq!(effects(&world).await, 1);
}

/// The effect is committed, then the consumer dies before it writes to its cache.
#[tokio::test]
async fn a_cache_written_after_success_can_miss_it() {
    let world: Lite = with_effects().await;
    let cache: BTreeSet<&str> = BTreeSet::new();
    for _delivery in 0..2 {
        if !cache.contains("m-1") {
            world.sql(&effect(&world, "m-1")).await;
            // kill -9 here: cache.insert("m-1") is never reached
        }
    }
    assert_eq!(effects(&world).await, 2, "paid twice");
    let world: Lite = with_effects().await;
    for _delivery in 0..2 {
        process(&world, &inbox(), &message("m-1", "5")).await.expect("an answer");
    }
    assert_eq!(effects(&world).await, 1);
}

/// Each retry has another key, so no key is ever seen twice.
#[tokio::test]
async fn only_a_business_reference_catches_retries_with_new_keys() {
    let world: Lite = with_effects().await;
    for key in ["key-1", "key-2"] {
        process(&world, &inbox(), &message(key, "5")).await.expect("ran");
    }
    assert_eq!(effects(&world).await, 2, "paid twice");
    let world: Lite = with_effects().await;
    let references = BusinessReferences::new("acme", "pay");
    for key in 1..=2 {
        let mut transaction = world.begin().await;
        let bound =
            references.bind(&mut *transaction, "invoice-117", OperationId::from_bytes([key; 16])).await;
        if bound.expect("an answer") == Binding::Bound {
            Lite::run(&mut transaction, effect(&world, "paid")).await.expect("written");
        }
        transaction.commit().await.expect("committed");
    }
    assert_eq!(effects(&world).await, 1);
}

/// A producer that serialises again for a retry writes the members in another order.
#[tokio::test]
async fn a_hash_of_raw_json_mistakes_a_retry_for_another_message() {
    let world: Lite = with_effects().await;
    let bodies = [r#"{"amount":5,"to":"x"}"#, r#"{"to": "x", "amount": 5}"#];
    let id = |id: &str| MessageId::new(id).expect("an id");
    let raw = bodies.map(|body| Message::raw("a", id("raw"), body).expect("a message"));
    process(&world, &inbox(), &raw[0]).await.expect("ran");
    let retry = process(&world, &inbox(), &raw[1]).await;
    assert!(matches!(retry, Err(PatternError::Mismatch(_))), "a retry goes to the dead letters: {retry:?}");
    let json = bodies.map(|body| Message::json("a", id("json"), body).expect("a message"));
    process(&world, &inbox(), &json[0]).await.expect("ran");
    assert_eq!(process(&world, &inbox(), &json[1]).await.expect("an answer"), InboxResult::Duplicate);
}

/// The broker delays a message for two days; the marks are kept for one.
#[tokio::test]
async fn a_window_shorter_than_the_retry_horizon_runs_a_message_twice() {
    let day = Duration::from_hours(24);
    for (window, expected) in [(day, 2), (3 * day, 1)] {
        let world: Lite = with_effects().await;
        let inbox = inbox().window(window);
        process(&world, &inbox, &message("m-1", "5")).await.expect("ran");
        world.sql("UPDATE {o:inbox_marks} SET processed_at = processed_at - 2 * 86400000").await;
        let mut connection = world.pool().acquire().await.expect("a connection");
        inbox.purge(&mut *connection, 100).await.expect("purged");
        drop(connection);
        process(&world, &inbox, &message("m-1", "5")).await.expect("an answer");
        assert_eq!(effects(&world).await, expected, "a window of {window:?}");
    }
}

/// Two concurrent requests look for the order, find none, and both insert one.
#[tokio::test]
async fn checking_before_an_insert_needs_a_unique_key() {
    let world: Lite = with_effects().await;
    let look = "SELECT count(*) FROM {t:effects} WHERE name = 'order-7'";
    let seen = [world.ask(look).await, world.ask(look).await];
    for found in seen {
        if found == 0 {
            world.sql(&effect(&world, "order-7")).await;
        }
    }
    assert_eq!(effects(&world).await, 2, "two orders");
    world.sql("CREATE TABLE orders (number text PRIMARY KEY)").await;
    let orders = NaturalTable::new("orders", &["number"]);
    let mut inserted = 0;
    for _ in 0..2 {
        let mut transaction = world.begin().await;
        let row = orders
            .insert_or_get(&mut *transaction, &[("number", "order-7".into())])
            .await
            .expect("an answer");
        inserted += u32::from(matches!(row, InsertOrGet::Inserted(_)));
        transaction.commit().await.expect("committed");
    }
    assert_eq!(inserted, 1);
}

/// The increment is a separate statement before its transaction. That fails, and is run again.
#[tokio::test]
async fn an_increment_outside_the_transaction_counts_rolled_back_work() {
    let world: Lite = with_effects().await;
    world.sql("CREATE TABLE balance (value bigint)").await;
    world.sql("INSERT INTO balance VALUES (0)").await;
    let counter = Counter::new("balance");
    for attempt in 0..2 {
        world.sql("UPDATE balance SET value = value + 5").await;
        let mut transaction = world.begin().await;
        counter.add(&mut *transaction, "op-1", 5).await.expect("counted");
        Lite::run(&mut transaction, effect(&world, "paid")).await.expect("written");
        if attempt == 1 {
            transaction.commit().await.expect("committed");
        }
    }
    assert_eq!(effects(&world).await, 1);
    assert_eq!(world.ask("SELECT value FROM balance").await, 10, "one payment, counted twice");
    assert_eq!(world.ask("SELECT value FROM {o:counter_sums}").await, 5);
}
