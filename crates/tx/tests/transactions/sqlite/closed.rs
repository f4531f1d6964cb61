//! The application's own connection can be reused, whatever happened to a transaction on it.

use super::own::pool;
use super::world::{Node, World, intent, ran};
use semel::core::outcome::Outcome;
use semel_tx::Error;
use semel_tx::sqlite::own::{Joined, OwnedTransaction, join};
use sqlx::{Row as _, Sqlite, SqlitePool, Transaction};
use std::sync::mpsc;
use std::time::Duration;
use tokio::time::timeout;

async fn node(world: &World) -> Node {
    let node = world.node().await;
    node.engine.store_id().await.expect("it has one");
    node
}

async fn begun(pool: &SqlitePool) -> Transaction<'static, Sqlite> {
    pool.begin_with("BEGIN IMMEDIATE").await.expect("the connection has nothing open")
}

async fn owned(node: &Node, pool: &SqlitePool) -> OwnedTransaction<'static> {
    let joined = join(&node.engine, begun(pool).await, intent("order-1")).await.expect("joined");
    let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
    let insert = sqlx::query("INSERT INTO orders (id, item) VALUES ('1', 'book')");
    insert.execute(owned.connection()).await.expect("inserted");
    owned
}

fn done() -> Outcome {
    Outcome::http(201, [("a", "b")], "created")
}

/// Only its own connection sees a temporary table.
async fn note(pool: &SqlitePool) {
    sqlx::query("CREATE TEMP TABLE seen (x)").execute(pool).await.expect("created");
}

async fn is_noted(pool: &SqlitePool) -> bool {
    let asking = sqlx::query("SELECT count(*) FROM sqlite_temp_master").fetch_one(pool);
    let row =
        timeout(Duration::from_secs(10), asking).await.expect("the pool has a place").expect("an answer");
    row.get::<i64, _>(0) == 1
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_connection_finishes_its_commit_before_reuse() {
    for commits in [true, false] {
        let world = World::new();
        let (node, pool) = (node(&world).await, pool(&world, 1).await);
        note(&pool).await;
        let (waits, waiting) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let mut owned = owned(&node, &pool).await;
        owned.connection().lock_handle().await.expect("locked").set_commit_hook(move || {
            waits.send(()).expect("a caller waits");
            let _ = released.recv();
            commits
        });
        let recorded = owned.succeed(done()).await.expect("recorded");
        let left = timeout(Duration::from_millis(500), recorded.commit()).await;
        assert!(left.is_err(), "{left:?}");
        waiting.recv().expect("it was committing");
        drop(release);
        assert!(is_noted(&pool).await, "the pool's connection");
        let expected = if commits { (1, 1) } else { (0, 0) };
        assert_eq!((world.orders(), world.records()), expected, "the file has all of it or nothing");
        begun(&pool).await.rollback().await.expect("nothing is open");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_kept_after_its_commit() {
    let world = World::new();
    let (node, pool) = (node(&world).await, pool(&world, 1).await);
    note(&pool).await;
    assert!(ran(&owned(&node, &pool)
        .await
        .succeed(done())
        .await
        .expect("recorded")
        .commit()
        .await
        .expect("yes")));
    assert!(is_noted(&pool).await, "the same connection");
    begun(&pool).await.rollback().await.expect("rolled back");
}

/// sqlx would continue to count the transaction as open, and refuse to begin the next one.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_reusable_after_sqlite_ended_its_transaction() {
    let world = World::new();
    let (node, pool) = (node(&world).await, pool(&world, 1).await);
    let end = "INSERT OR ROLLBACK INTO customers VALUES ('ada')";
    // Before it joins,
    let mut transaction = begun(&pool).await;
    assert!(sqlx::query(end).execute(&mut *transaction).await.is_err());
    let refused = join(&node.engine, transaction, intent("order-1")).await;
    assert!(
        matches!(&refused, Err(error) if error.to_string().contains("rolled the transaction back")),
        "{refused:?}"
    );
    drop(refused);
    // a failed end, given up, refused, and dropped.
    let mut ended = owned(&node, &pool).await;
    assert!(sqlx::query(end).execute(ended.connection()).await.is_err());
    let left = ended.succeed(done()).await;
    assert!(matches!(&left, Err(Error::TransactionLeft(_))), "{left:?}");
    drop(left);
    let mut given_up = owned(&node, &pool).await;
    assert!(sqlx::query(end).execute(given_up.connection()).await.is_err());
    given_up.abandon().await.expect("there is nothing left to undo");
    let mut dropped = owned(&node, &pool).await;
    assert!(sqlx::query(end).execute(dropped.connection()).await.is_err());
    drop(dropped);
    let mut refusing = owned(&node, &pool).await;
    assert!(sqlx::query(end).execute(refusing.connection()).await.is_err());
    let answer = refusing.refuse(done()).await.expect("recorded").commit().await.expect("committed");
    assert!(ran(&answer));
    begun(&pool).await.rollback().await.expect("rolled back");
    assert_eq!((world.orders(), world.records()), (0, 1));
    world.assert_sound(&node).await;
}
