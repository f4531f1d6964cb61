//! A rollback leaves no trace.

use super::world::{Events, World, body, created, failed, insert_order, intent, intent_with, ran, work};
use futures_util::future::BoxFuture;
use semel::core::outcome::Outcome;
use semel::core::record::StateName;
use semel_tx::patterns::{Counter, Tables};
use semel_tx::postgres::{Joined, join, transact};
use semel_tx::{BoxError, Error, Local, LocalEnding};
use sqlx::{Connection as _, PgConnection};
use std::time::Duration;

/// Work that writes an order and then does `then`.
fn writing<F>(
    world: &World,
    then: F,
) -> impl for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>>
+ Clone
+ Send
+ Sync
+ 'static
where
    F: for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let schema = world.schema.clone();
    work(move |tx, local| {
        let (schema, then) = (schema.clone(), then.clone());
        Box::pin(async move {
            insert_order(&mut *tx, &schema, local).await?;
            then(tx, local).await
        })
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_rolls_back_and_the_next_call_runs() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(2).await;
    let failing = writing(&world, |_, _| Box::pin(async { Err("the stock is unknown".into()) }));
    let failed = transact(&engine, &database, intent("order-1"), failing).await;
    let Err(error @ Error::Work(_)) = failed else { panic!("{failed:?}") };
    assert!(error.to_string().contains("the stock is unknown") && error.is_retryable());
    assert_eq!((world.orders().await, world.records().await, events.of("RolledBack")), (0, 0, 1));
    let answer = world.order(&engine, &database, "order-1").await.expect("it ran");
    assert!(ran(&answer));
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_committed_alone() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let refusing = writing(&world, |_, _| {
        Box::pin(async { Ok(LocalEnding::Refused(Outcome::http(422, [("a", "b")], "sold out"))) })
    });
    let refused = failed(transact(&engine, &database, intent("order-1"), refusing).await);
    assert!(ran(&refused) && body(&refused) == "sold out");
    assert_eq!(world.record(&engine, &refused).await.state_name(), StateName::FailedReplayable);
    let again = failed(world.order(&world.engine().await, &database, "order-1").await);
    assert!(!ran(&again) && body(&again) == "sold out");
    assert_eq!(world.orders().await, 0, "what the work had written is undone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_undoes_its_own_transaction_only() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(2).await;
    let panicking = writing(&world, |_, _| Box::pin(async { panic!("a bug in the work") }));
    let panicked = transact(&engine, &database, intent("order-1"), panicking).await;
    assert!(matches!(panicked, Err(Error::Panicked)), "{panicked:?}");
    assert_eq!((world.orders().await, world.records().await, events.of("Panicked")), (0, 0, 1));
    assert!(ran(&world.order(&engine, &database, "order-1").await.expect("it ran")));
    assert_eq!(world.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn work_past_its_deadline_is_rolled_back_and_its_connection_closed() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let sleeping = writing(&world, |tx, local| {
        Box::pin(async move {
            sqlx::query("SELECT pg_sleep(3)").execute(tx).await?;
            Ok(created(local))
        })
    });
    let hasty = intent_with("order-1", "5", |policy| policy.work_deadline = Duration::from_millis(300));
    let overran = transact(&engine, &database, hasty, sleeping).await;
    assert!(matches!(overran, Err(Error::Overran)), "{overran:?}");
    assert_eq!((world.orders().await, world.records().await), (0, 0));
    // The pool's only connection is free again.
    assert!(ran(&world.order(&engine, &database, "order-2").await.expect("it ran")));
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_commits_by_itself_is_noticed() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(2).await;
    for sql in ["COMMIT", "COMMIT; BEGIN", "ROLLBACK; BEGIN", "ROLLBACK"] {
        let committing = writing(&world, move |tx, local| {
            Box::pin(async move {
                sqlx::raw_sql(sql).execute(tx).await?;
                Ok(created(local))
            })
        });
        let left = transact(&engine, &database, intent(sql), committing).await;
        assert!(matches!(left, Err(Error::TransactionLeft(_))), "{sql}: {left:?}");
        assert_eq!(world.records().await, 0, "{sql}");
    }
    assert_eq!(events.of("Unfinished"), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_transaction_left_open_commits_nothing() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let nesting = writing(&world, |tx, local| {
        Box::pin(async move {
            std::mem::forget(tx.begin().await?);
            Ok(created(local))
        })
    });
    let left = transact(&engine, &database, intent("order-1"), nesting).await;
    assert!(matches!(left, Err(Error::TransactionLeft(_))), "{left:?}");
    assert_eq!((world.orders().await, world.records().await), (0, 0));
    assert!(ran(&world.order(&engine, &database, "order-1").await.expect("it ran")));
    assert_eq!(world.orders().await, 1);
}

/// A pattern has its own savepoint, which fails without ending the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_ignored_error_of_a_pattern_nothing_is_committed() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let (schema, tables) = (world.schema.clone(), Tables::in_schema(world.schema.as_str()));
    let careless = work(move |tx, local| {
        let (schema, counter) = (schema.clone(), Counter::new("orders").tables(tables.clone()));
        Box::pin(async move {
            drop(sqlx::query("SELECT 1 / 0").execute(&mut *tx).await);
            drop(counter.add(tx, "op-1", 1).await);
            drop(insert_order(tx, &schema, local).await);
            Ok(created(local))
        })
    });
    for _try in 0..2 {
        let failed = transact(&engine, &database, intent("order-1"), careless.clone()).await;
        assert!(matches!(failed, Err(Error::StatementFailed)), "{failed:?}");
        assert_eq!((world.orders().await, world.records().await), (0, 0));
    }
}

async fn begin_by_hand(tx: &mut PgConnection) {
    drop(sqlx::query("SELECT 1 / 0").execute(&mut *tx).await);
    drop(tx.begin().await);
    sqlx::query("BEGIN").execute(tx).await.expect("begun by hand");
}

/// sqlx rolls everything back when a nested `begin` fails, and does not know of a BEGIN by hand.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_sqlx_does_not_know_is_not_left_in_the_pool() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let left = work(move |tx, local| {
        Box::pin(async move {
            begin_by_hand(tx).await;
            Ok(created(local))
        })
    });
    let insert = format!("INSERT INTO {}.orders (id, item) VALUES ($1, 'book')", world.schema);
    let mut orders = 0;
    for by_hand in [false, true] {
        if by_hand {
            let transaction = database.pool().begin().await.expect("a transaction");
            let joined = join(&engine, &database, transaction, intent("order-2")).await.expect("joined");
            let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
            begin_by_hand(owned.connection()).await;
            let recorded = owned.succeed(Outcome::http(201, [("a", "b")], "created")).await;
            assert!(matches!(recorded, Err(Error::TransactionLeft(_))), "{recorded:?}");
        } else {
            let left = transact(&engine, &database, intent("order-1"), left).await;
            assert!(matches!(left, Err(Error::TransactionLeft(_))), "{left:?}");
        }
        assert_eq!((world.orders().await, world.records().await), (orders, 0));
        // The next user of the pool's only connection.
        let inserting = sqlx::query(sqlx::AssertSqlSafe(insert.clone())).bind(by_hand.to_string());
        inserting.execute(database.pool()).await.expect("inserted");
        orders += 1;
        assert_eq!(world.orders().await, orders, "by hand: {by_hand}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swallowed_error_still_rolls_back() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let hiding = writing(&world, |tx, local| {
        Box::pin(async move {
            drop(sqlx::query("SELECT 1 / 0").execute(tx).await);
            Ok(created(local))
        })
    });
    let failed = transact(&engine, &database, intent("order-1"), hiding).await;
    assert!(matches!(failed, Err(Error::StatementFailed)), "{failed:?}");
    assert_eq!((world.orders().await, world.records().await), (0, 0));
    // The same manually, and the connection can be reused.
    let database = world.database(1).await;
    for expected in [true, false] {
        let transaction = database.pool().begin().await.expect("a transaction");
        let joined = join(&engine, &database, transaction, intent("order-1")).await.expect("joined");
        let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
        let local = owned.local();
        insert_order(owned.connection(), &world.schema, local).await.expect("written");
        if expected {
            drop(sqlx::query("SELECT 1 / 0").execute(owned.connection()).await);
        }
        let recorded = owned.succeed(Outcome::http(201, [("a", "b")], "created")).await;
        assert_eq!(matches!(recorded, Err(Error::StatementFailed)), expected, "{recorded:?}");
        if let Ok(recorded) = recorded {
            assert!(ran(&recorded.commit().await.expect("committed")));
        }
    }
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_constraint_that_fails_undoes_the_record_too() {
    let world = World::new().await;
    world
        .sql("ALTER TABLE {s}.orders ADD CONSTRAINT unique_item UNIQUE (item) DEFERRABLE INITIALLY DEFERRED")
        .await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    world.order(&engine, &database, "order-1").await.expect("the first book");
    let failed = world.order(&engine, &database, "order-2").await;
    assert!(matches!(failed, Err(Error::Database(_))), "{failed:?}");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_rolls_back_work_that_does_not_end_in_time() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let slow = writing(&world, |_, local| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_mins(1)).await;
            Ok(created(local))
        })
    });
    let calling = tokio::spawn({
        let (engine, database) = (engine.clone(), database.clone());
        async move { transact(&engine, &database, intent("order-1"), slow).await }
    });
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{s}' AND state = 'idle in transaction'";
    while world.number(sql).await == 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    engine.shutdown(Duration::from_millis(100)).await;
    let closed = calling.await.expect("no panic");
    assert!(matches!(closed, Err(Error::Closing)), "{closed:?}");
    assert_eq!((world.orders().await, world.records().await), (0, 0));
}
