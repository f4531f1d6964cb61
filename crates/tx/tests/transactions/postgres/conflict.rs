//! Only the last write decides; and the database that it is written to.

use super::world::{World, body, created, insert_order, intent, ran, url, work};
use semel_tx::Error;
use semel_tx::postgres::{Database, Isolation, transact};
use sqlx::{AssertSqlSafe, Row as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;

const LEVELS: [Isolation; 3] = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

/// Another session writes the command's record while its work runs, ignoring the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_appears_concurrently_rolls_everything_back() {
    for level in LEVELS {
        let world = World::new().await;
        let database = world.database(4).await.isolation(level);
        world.order(&world.engine().await, &database, "order-1").await.expect("it ran");
        world
            .sql(
                "CREATE TABLE {s}.saved AS SELECT * FROM {s}.records WHERE version IS NOT NULL; \
                 DELETE FROM {s}.records WHERE version IS NOT NULL; TRUNCATE {s}.orders",
            )
            .await;
        let runs = Arc::new(AtomicUsize::new(0));
        let (counting, schema, admin) = (Arc::clone(&runs), world.schema.clone(), world.admin.clone());
        let work = work(move |tx, local| {
            let (counting, schema, admin) = (Arc::clone(&counting), schema.clone(), admin.clone());
            Box::pin(async move {
                insert_order(tx, &schema, local).await?;
                if counting.fetch_add(1, Ordering::SeqCst) == 0 {
                    let sql = format!("INSERT INTO {schema}.records SELECT * FROM {schema}.saved");
                    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&admin).await?;
                }
                Ok(created(local))
            })
        });
        // A node that does not know of the first run.
        let answer =
            transact(&world.engine().await, &database, intent("order-1"), work).await.expect("an answer");
        assert!(!ran(&answer), "{level:?}");
        assert_eq!(
            (world.orders().await, runs.load(Ordering::SeqCst)),
            (0, 1),
            "{level:?}: its effect is undone"
        );
    }
}

/// The work of several commands changes one row: at the higher levels all but one run again.
#[tokio::test(flavor = "multi_thread")]
async fn serialization_failures_run_the_work_again() {
    for level in LEVELS {
        let world = World::new().await;
        world.sql("INSERT INTO {s}.counters VALUES ('stock', 0)").await;
        let (engine, database) = (world.engine().await, world.database(6).await.isolation(level));
        let schema = world.schema.clone();
        let work = work(move |tx, local| {
            let schema = schema.clone();
            Box::pin(async move {
                let sql = format!("SELECT value FROM {schema}.counters WHERE name = 'stock' FOR UPDATE");
                let value: i64 = sqlx::query(AssertSqlSafe(sql)).fetch_one(&mut *tx).await?.try_get(0)?;
                let sql = format!("UPDATE {schema}.counters SET value = $1 WHERE name = 'stock'");
                sqlx::query(AssertSqlSafe(sql)).bind(value + 1).execute(&mut *tx).await?;
                Ok(created(local))
            })
        });
        let mut calls = JoinSet::new();
        for number in 0..24 {
            let (engine, database, work) = (engine.clone(), database.clone(), work.clone());
            // Twice each: half of them are duplicates.
            let intent = intent(&format!("order-{}", number % 12));
            calls.spawn(async move {
                loop {
                    let wait = std::time::Duration::from_secs(20);
                    match transact(&engine, &database, intent.clone().waiting(wait), work.clone()).await {
                        // Repeated ten times automatically, and then by its caller.
                        Err(error) if error.is_retryable() => {}
                        answer => return answer,
                    }
                }
            });
        }
        let answers = calls.join_all().await;
        let run = answers.iter().filter(|answer| ran(answer.as_ref().expect("an answer"))).count();
        assert_eq!(run, 12, "{level:?}");
        let counted = world.number("SELECT value FROM {s}.counters").await;
        assert_eq!((counted, world.records().await), (12, 12), "{level:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadlock_runs_the_work_again() {
    let world = World::new().await;
    world.sql("INSERT INTO {s}.counters VALUES ('a', 0), ('b', 0)").await;
    let (engine, database) = (world.engine().await, world.database(4).await);
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let met = Arc::new(AtomicUsize::new(0));
    let locking = |first: &'static str, second: &'static str| {
        let (schema, both, met) = (world.schema.clone(), Arc::clone(&both), Arc::clone(&met));
        work(move |tx, local| {
            let (schema, both, met) = (schema.clone(), Arc::clone(&both), Arc::clone(&met));
            Box::pin(async move {
                let sql = format!("UPDATE {schema}.counters SET value = value + 1 WHERE name = $1");
                sqlx::query(AssertSqlSafe(sql.clone())).bind(first).execute(&mut *tx).await?;
                if met.fetch_add(1, Ordering::SeqCst) < 2 {
                    both.wait().await;
                }
                sqlx::query(AssertSqlSafe(sql)).bind(second).execute(&mut *tx).await?;
                Ok(created(local))
            })
        })
    };
    let one = transact(&engine, &database, intent("order-1"), locking("a", "b"));
    let other = transact(&engine, &database, intent("order-2"), locking("b", "a"));
    let (one, other) = tokio::join!(one, other);
    assert!(ran(&one.expect("it ran")) && ran(&other.expect("it ran")));
    assert!(met.load(Ordering::SeqCst) > 2, "one of them was run again");
    assert_eq!(world.number("SELECT sum(value)::bigint FROM {s}.counters").await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_databases_pool_is_refused() {
    let (world, other) = (World::new().await, World::new().await);
    let (engine, others) = (world.engine().await, other.engine().await);
    // It has the tables, with another store's records.
    let wrong = other.database(1).await;
    other.order(&others, &wrong, "order-1").await.expect("it is the other engine's");
    for _ in 0..2 {
        let refused = world.order(&engine, &wrong, "order-1").await;
        assert!(matches!(&refused, Err(Error::OtherStore { pool: Some(_), .. })), "{refused:?}");
        assert!(!refused.expect_err("refused").is_retryable());
    }
    // It has no tables at all.
    let pool = sqlx::PgPool::connect(&url()).await.expect("the server answers");
    let refused = world.order(&engine, &Database::new(pool).schema("tx_nowhere"), "order-1").await;
    assert!(matches!(&refused, Err(Error::OtherStore { pool: None, .. })), "{refused:?}");
    assert_eq!((world.orders().await, world.records().await, other.orders().await), (0, 0, 1));
    // The right one is asked once.
    let database = world.database(1).await;
    assert_eq!(body(&world.order(&engine, &database, "order-1").await.expect("it ran")), "created");
}
