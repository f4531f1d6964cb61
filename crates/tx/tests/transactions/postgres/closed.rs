//! Connections that are never reused: a commit on them has no answer, or a statement still runs.

use super::world::{World, created, insert_order, intent, intent_with, ran, work};
use semel::core::outcome::Outcome;
use semel::{Engine, Settings};
use semel_testkit::faults::Gate;
use semel_testkit::proxy::{Fault, Request, Script};
use semel_tx::Error;
use semel_tx::postgres::{Database, Joined, Recorded, join, transact};
use sqlx::Row as _;
use std::time::Duration;
use tokio::time::timeout;

const COMMIT: &[u8] = b"COMMIT\0";

async fn engine(world: &World) -> Engine {
    let settings = Settings { store_timeout: Duration::from_secs(2), ..Settings::default() };
    world.builder().await.settings(settings).build().await.expect("an engine")
}

async fn recorded<'c>(world: &World, engine: &Engine, database: &Database, key: &str) -> Recorded<'c> {
    let transaction = database.pool().begin().await.expect("a transaction");
    let joined = join(engine, database, transaction, intent(key)).await.expect("joined");
    let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
    let local = owned.local();
    insert_order(owned.connection(), &world.schema, local).await.expect("written");
    owned.succeed(Outcome::http(201, [("a", "b")], "created")).await.expect("recorded")
}

/// The server's process behind the pool's only connection.
async fn process(database: &Database) -> i32 {
    let asking = sqlx::query("SELECT pg_backend_pid()").fetch_one(database.pool());
    timeout(Duration::from_secs(10), asking).await.expect("the pool has a place").expect("an answer").get(0)
}

/// The bytes are lost: the connection would block its slot in the pool for as long as the operating system
/// keeps it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_with_an_unanswered_commit_is_closed_at_once() {
    let world = World::new().await;
    let (engine, (database, proxy)) = (engine(&world).await, world.proxied(1).await);
    let recorded = recorded(&world, &engine, &database, "order-1").await;
    proxy.set_plan(
        |request: &Request<'_>| if request.contains(COMMIT) { Fault::HalfOpen } else { Fault::Pass },
    );
    let before =
        world.number("SELECT pid::bigint FROM pg_stat_activity WHERE application_name = '{s}'").await;
    let failed = recorded.commit().await;
    // After it is closed, its transaction is over, and the lock shows that nothing was committed.
    assert!(matches!(&failed, Err(Error::Database(_))), "{failed:?}");
    proxy.set_plan(|_: &Request<'_>| Fault::Pass);
    assert_ne!(i64::from(process(&database).await), before);
    assert!(ran(&world.order(&engine, &database, "order-1").await.expect("it runs")));
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

/// The server answers, but the caller no longer waits.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_abandoned_during_a_commit_is_not_reused() {
    let world = World::new().await;
    let (engine, (database, proxy)) = (engine(&world).await, world.proxied(1).await);
    let before = process(&database).await;
    let recorded = recorded(&world, &engine, &database, "order-1").await;
    let gate = Gate::default();
    proxy.set_plan(Script::of(COMMIT, [Fault::DelayResponse(gate.pause())]));
    let left = timeout(Duration::from_millis(500), recorded.commit()).await;
    assert!(left.is_err(), "{left:?}");
    gate.open();
    assert_ne!(process(&database).await, before);
    assert_eq!((world.orders().await, world.records().await), (1, 1), "the server had it");
}

/// The server notices a closed connection only after its statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_of_work_past_its_deadline_is_cancelled() {
    let world = World::new().await;
    let (engine, database) = (engine(&world).await, world.database(1).await);
    let schema = world.schema.clone();
    let sleeping = work(move |tx, local| {
        let schema = schema.clone();
        Box::pin(async move {
            insert_order(&mut *tx, &schema, local).await?;
            sqlx::query("SELECT pg_sleep(40)").execute(tx).await?;
            Ok(created(local))
        })
    });
    let hasty = || intent_with("order-1", "5", |policy| policy.work_deadline = Duration::from_millis(300));
    let overran = transact(&engine, &database, hasty(), sleeping).await;
    assert!(matches!(overran, Err(Error::Overran)), "{overran:?}");
    // The lock is free again, so the next call runs.
    let again = hasty().waiting(Duration::from_secs(10));
    let answer = transact(&engine, &database, again, world.ordering()).await.expect("an answer");
    assert!(ran(&answer), "{answer:?}");
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{s}' AND query LIKE '%pg_sleep%'";
    assert_eq!((world.number(running).await, world.orders().await, world.records().await), (0, 1, 1));
}

/// Only the session of that transaction: another one that has begun meanwhile is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_other_work_is_not_terminated() {
    let world = World::new().await;
    let database = world.database(1).await;
    let mut transaction = database.pool().begin().await.expect("a transaction");
    let row = sqlx::query("SELECT pg_backend_pid()").fetch_one(&mut *transaction).await.expect("an answer");
    let ended = sqlx::query(semel_sql::postgres::transaction::TransactionStatements::END_SESSION)
        .bind(row.get::<i32, _>(0))
        .bind(1_i64)
        .fetch_all(&world.admin)
        .await
        .expect("an answer");
    assert_eq!(ended.len(), 0);
    transaction.commit().await.expect("it is still there");
}
