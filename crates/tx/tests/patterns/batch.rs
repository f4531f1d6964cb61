//! Messages, many at a time.

use crate::world::{Lite, Pg, World, effect, effects, message, race, with_effects};
use semel_tx::patterns::{BatchResult, Inbox, InboxResult, Message, PatternError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

on_both!(
    every_message_of_a_batch_gets_its_own_result,
    failed_messages_leave_no_mark_and_the_others_are_committed,
    a_duplicate_in_the_batch_gets_the_first_ones_result,
    a_batch_without_failures_runs_each_message_once,
    batches_of_sixty_four_consumers_have_each_effect_once,
    a_batch_inside_a_transaction_is_refused,
);

/// Processes a batch; messages with the body `bad` fail after they have written.
async fn process<W: World>(
    world: &W,
    inbox: &Inbox,
    messages: &[Message],
    runs: Arc<AtomicU32>,
) -> Result<Vec<BatchResult>, PatternError> {
    let mut connection = world.pool().acquire().await.expect("a connection");
    let table = world.table("effects");
    inbox
        .batch(&mut *connection, messages, move |tx, message| {
            runs.fetch_add(1, Ordering::Relaxed);
            let sql = format!("INSERT INTO {table} (name) VALUES ('{}')", message.id().as_str());
            Box::pin(async move {
                W::run(tx, sql).await?;
                if message.body() == b"bad" { Err("the message is bad".into()) } else { Ok(()) }
            })
        })
        .await
}

fn inbox<W: World>(world: &W) -> Inbox {
    Inbox::new("billing").tables(world.tables()).wait(Duration::from_mins(1))
}

fn describe(results: &[BatchResult]) -> Vec<String> {
    let describe_one = |result: &BatchResult| match result {
        Ok(InboxResult::Processed(())) => "processed".to_owned(),
        Ok(InboxResult::Duplicate) => "duplicate".to_owned(),
        Err(PatternError::Mismatch(_)) => "mismatch".to_owned(),
        Err(PatternError::Work(error)) => error.to_string(),
        Err(error) => panic!("{error}"),
    };
    results.iter().map(describe_one).collect()
}

async fn every_message_of_a_batch_gets_its_own_result<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    let none = process(&world, &inbox, &[], Arc::default()).await.expect("committed");
    assert!(none.is_empty());
    process(&world, &inbox, &[message("b", "5"), message("c", "5")], Arc::default())
        .await
        .expect("committed");
    let batch = [message("d", "5"), message("c", "6"), message("b", "5"), message("a", "5")];
    let results = process(&world, &inbox, &batch, Arc::default()).await.expect("committed");
    assert_eq!(describe(&results), ["processed", "mismatch", "duplicate", "processed"]);
    assert_eq!(effects(&world).await, 4);
}

async fn failed_messages_leave_no_mark_and_the_others_are_committed<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    let batch = [message("a", "5"), message("b", "bad"), message("c", "5"), message("d", "bad")];
    let results = process(&world, &inbox, &batch, Arc::default()).await.expect("committed");
    assert_eq!(describe(&results), ["processed", "the message is bad", "processed", "the message is bad"]);
    assert_eq!(world.ask("SELECT count(*) FROM {t:effects} WHERE name IN ('b', 'd')").await, 0);
    assert_eq!(world.ask("SELECT count(*) FROM {o:inbox_marks} WHERE message_id IN ('b', 'd')").await, 0);
    // The broker delivers them again, and the cause of the failure is fixed.
    let again = [message("a", "5"), message("b", "5"), message("c", "5"), message("d", "5")];
    let results = process(&world, &inbox, &again, Arc::default()).await.expect("committed");
    assert_eq!(describe(&results), ["duplicate", "processed", "duplicate", "processed"]);
    assert_eq!(effects(&world).await, 4);
}

async fn a_duplicate_in_the_batch_gets_the_first_ones_result<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    let batch =
        [message("a", "5"), message("b", "bad"), message("a", "5"), message("b", "bad"), message("a", "6")];
    let results = process(&world, &inbox, &batch, Arc::default()).await.expect("committed");
    assert_eq!(
        describe(&results),
        ["processed", "the message is bad", "duplicate", "the message is bad", "mismatch"]
    );
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:inbox_marks}").await), (1, 1));
}

/// Savepoints and a second run are only for batches with a failure.
async fn a_batch_without_failures_runs_each_message_once<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    let batch: Vec<Message> = (0..500).map(|number| message(&format!("m-{number}"), "5")).collect();
    let runs: Arc<AtomicU32> = Arc::default();
    let results = process(&world, &inbox, &batch, Arc::clone(&runs)).await.expect("committed");
    assert!(describe(&results).iter().all(|result| result == "processed"));
    assert_eq!((runs.load(Ordering::Relaxed), effects(&world).await), (500, 500));
    process(&world, &inbox, &batch, Arc::clone(&runs)).await.expect("committed");
    assert_eq!((runs.load(Ordering::Relaxed), effects(&world).await), (500, 500));
}

/// Every consumer gets all IDs, each in another order, and there is no deadlock.
async fn batches_of_sixty_four_consumers_have_each_effect_once<W: World>() {
    let world = Arc::new(with_effects::<W>().await);
    let inbox = inbox(&*world);
    let results = race(|racer| {
        let (world, inbox) = (Arc::clone(&world), inbox.clone());
        async move {
            let id = |number: u64| format!("m-{:02}", (number * 7 + racer * 5) % 20);
            let batch: Vec<Message> = (0..20).map(|number| message(&id(number), "5")).collect();
            describe(&process(&*world, &inbox, &batch, Arc::default()).await.expect("committed"))
        }
    })
    .await;
    let processed = results.iter().flatten().filter(|result| *result == "processed").count();
    let duplicates = results.iter().flatten().filter(|result| *result == "duplicate").count();
    assert_eq!((processed, duplicates), (20, 63 * 20));
    let twice = "SELECT count(*) - count(DISTINCT name) FROM {t:effects}";
    assert_eq!((effects(&*world).await, world.ask(twice).await), (20, 0));
}

async fn a_batch_inside_a_transaction_is_refused<W: World>() {
    let world: W = with_effects().await;
    let mut transaction = world.begin().await;
    let refused =
        inbox(&world).batch(&mut *transaction, &[message("a", "5")], |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(PatternError::InTransaction)), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_serialization_failure_the_whole_batch_starts_again() {
    for code in ["40001", "40P01"] {
        let world: Pg = with_effects().await;
        let mut connection = world.pool().acquire().await.expect("a connection");
        let runs: Arc<AtomicU32> = Arc::default();
        let (counting, sql) = (Arc::clone(&runs), effect(&world, "m"));
        let batch = [message("a", "5"), message("b", "5"), message("c", "5")];
        let results = inbox(&world)
            .batch(&mut *connection, &batch, move |tx, message| {
                let run = counting.fetch_add(1, Ordering::Relaxed);
                let sql = sql.clone();
                Box::pin(async move {
                    Pg::run(tx, sql).await?;
                    if run == 1 {
                        let raise = format!(
                            "DO $$ BEGIN RAISE EXCEPTION 'in the way' USING ERRCODE = '{code}'; END $$"
                        );
                        Pg::run(tx, raise).await?;
                    }
                    assert!(!message.id().as_str().is_empty());
                    Ok(())
                })
            })
            .await
            .expect("committed");
        assert_eq!(describe(&results), ["processed"; 3]);
        // a, b (fails), then all three again, without savepoints and without a failed message.
        assert_eq!((runs.load(Ordering::Relaxed), effects(&world).await), (5, 3), "{code}");
    }
}

/// PostgreSQL answers the COMMIT of such a transaction without an error, and commits nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_error_still_fails_the_message() {
    for hides in ["a", "b", "c"] {
        let world: Pg = with_effects().await;
        let mut connection = world.pool().acquire().await.expect("a connection");
        let batch = [message("a", "5"), message("b", "5"), message("c", "5")];
        let sql = effect(&world, "m");
        let results = inbox(&world)
            .batch(&mut *connection, &batch, move |tx, message| {
                let sql = sql.clone();
                Box::pin(async move {
                    Pg::run(tx, sql).await?;
                    if message.id().as_str() == hides {
                        drop(Pg::run(tx, "SELECT 1 / 0".to_owned()).await);
                    }
                    Ok(())
                })
            })
            .await
            .expect("committed");
        let failed: Vec<_> = batch.iter().zip(&results).filter(|(_, result)| result.is_err()).collect();
        assert!(
            matches!(failed[..], [(message, _)] if message.id().as_str() == hides),
            "{hides}: {results:?}"
        );
        assert_eq!(effects(&world).await, 2, "those of the others: {hides}");
    }
}

/// Writes after SQLite has rolled back by itself would be committed at once, without a mark.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_error_that_ends_the_transaction_nothing_is_processed() {
    for is_hidden in [true, false] {
        let world: Lite = with_effects().await;
        world.sql("CREATE TABLE {t:names} (name text PRIMARY KEY)").await;
        world.sql("INSERT INTO {t:names} VALUES ('taken')").await;
        let mut connection = world.pool().acquire().await.expect("a connection");
        let batch = [message("a", "5"), message("b", "5"), message("c", "5")];
        let (sql, table) = (effect(&world, "m"), world.table("names"));
        let refused = inbox(&world)
            .batch(&mut *connection, &batch, move |tx, message| {
                let (sql, table) = (sql.clone(), table.clone());
                Box::pin(async move {
                    Lite::run(tx, sql).await?;
                    if message.id().as_str() == "b" {
                        let taken =
                            Lite::run(tx, format!("INSERT OR ROLLBACK INTO {table} VALUES ('taken')")).await;
                        if !is_hidden {
                            taken?;
                        }
                    }
                    Ok(())
                })
            })
            .await;
        assert!(matches!(refused, Err(PatternError::TransactionEnded)), "{is_hidden}: {refused:?}");
        assert_eq!(effects(&world).await, 0, "{is_hidden}");
    }
}
