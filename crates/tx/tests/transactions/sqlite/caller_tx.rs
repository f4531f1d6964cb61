//! Transactions that the caller has opened itself, on its own connection.

use super::own::{pool, pool_of};
use super::world::{Events, Node, World, body, intent, ran, refused};
use semel::RefusalReason;
use semel::core::outcome::Outcome;
use semel::core::record::StateName;
use semel_tx::Error;
use semel_tx::sqlite::own::{Joined, OwnedTransaction, join};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, Sqlite, SqliteConnection, SqlitePool, Transaction};
use std::time::Duration;

const IMMEDIATE: &str = "BEGIN IMMEDIATE";

async fn begun(pool: &SqlitePool) -> Transaction<'static, Sqlite> {
    pool.begin_with(IMMEDIATE).await.expect("a transaction")
}

async fn insert(connection: &mut SqliteConnection, id: &str) {
    let insert = sqlx::query("INSERT INTO orders (id, item) VALUES (?1, 'book')").bind(id);
    insert.execute(connection).await.expect("inserted");
}

async fn owned(node: &Node, pool: &SqlitePool, key: &str) -> OwnedTransaction<'static> {
    match join(&node.engine, begun(pool).await, intent(key)).await.expect("joined") {
        Joined::Owned(owned) => owned,
        Joined::Answered { answer, .. } => panic!("{answer:?}"),
    }
}

fn done() -> Outcome {
    Outcome::http(201, [("a", "b")], "created")
}

/// A node on a store with an ID, and a pool of the application.
async fn setup(world: &World) -> (Node, SqlitePool) {
    let node = world.node().await;
    node.engine.store_id().await.expect("it has one");
    (node, pool(world, 2).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joined_transaction_commits_effect_and_record() {
    let world = World::new();
    let (node, pool) = setup(&world).await;
    let mut first = owned(&node, &pool, "order-1").await;
    let local = first.local();
    insert(first.connection(), "1").await;
    assert_eq!((world.orders(), world.records()), (0, 0), "nothing before the commit");
    let answer = first.succeed(done()).await.expect("recorded").commit().await.expect("committed");
    assert!(ran(&answer) && answer.operation_id == local.operation_id && body(&answer) == "created");
    for node in [&node, &world.node().await] {
        let mut transaction = begun(&pool).await;
        insert(&mut transaction, "beside").await;
        let joined = join(&node.engine, transaction, intent("order-1")).await.expect("an answer");
        let Joined::Answered { answer, transaction } = joined else { panic!("it ran: {joined:?}") };
        let answer = answer.expect("it ran");
        assert!(!ran(&answer) && body(&answer) == "created");
        transaction.rollback().await.expect("it is the caller's own");
    }
    assert_eq!((world.orders(), world.records()), (1, 1));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_undoes_what_the_transaction_wrote_before_and_after() {
    let world = World::new();
    let (node, pool) = setup(&world).await;
    let mut transaction = begun(&pool).await;
    insert(&mut transaction, "before").await;
    let joined = join(&node.engine, transaction, intent("order-1")).await.expect("joined");
    let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
    insert(owned.connection(), "after").await;
    let refusal = Outcome::http(422, [("a", "b")], "sold out");
    let answer = owned.refuse(refusal).await.expect("recorded").commit().await.expect("committed");
    assert_eq!((body(&answer).as_str(), world.orders()), ("sold out", 0));
    assert_eq!(world.record(&node.engine, &answer).await.state_name(), StateName::FailedReplayable);
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_ending_is_rolled_back_and_reported() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    node.engine.store_id().await.expect("it has one");
    let pool = pool(&world, 1).await;
    let mut forgotten = owned(&node, &pool, "order-1").await;
    insert(forgotten.connection(), "1").await;
    drop(forgotten);
    assert_eq!(events.of("Unfinished"), 1);
    // So is one that was recorded and never committed.
    drop(owned(&node, &pool, "order-1").await.succeed(done()).await.expect("recorded"));
    owned(&node, &pool, "order-1").await.abandon().await.expect("rolled back");
    assert_eq!(events.of("Unfinished"), 1, "giving up is not an error");
    assert_eq!((world.orders(), world.records()), (0, 0));
    assert!(ran(&node.order("order-1").await.expect("it runs")));
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_refused_while_open_and_woken_by_the_commit() {
    let world = World::new();
    let (node, pool) = setup(&world).await;
    let owned = owned(&node, &pool, "order-1").await;
    let answer = node.transact(intent("order-1").waiting(Duration::ZERO), super::world::ordering).await;
    assert!(matches!(refused(answer), RefusalReason::InProgress { .. }));
    let waiter = tokio::spawn({
        let node = node.clone();
        let patient = intent("order-1").waiting(Duration::from_secs(30));
        async move { node.transact(patient, super::world::ordering).await }
    });
    let (transaction, pending) = owned.succeed(done()).await.expect("recorded").into_parts();
    transaction.commit().await.expect("committed by other means");
    assert!(ran(&pending.committed()));
    let answer = waiter.await.expect("no panic").expect("an answer");
    assert!(!ran(&answer) && body(&answer) == "created");
    assert_eq!((world.orders(), world.records()), (0, 1));
}

/// Not begun with `BEGIN IMMEDIATE`: it gets the lock when it joins, unless its snapshot is old by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_transaction_gets_the_lock_or_an_old_snapshot_error() {
    let world = World::new();
    let (node, pool) = setup(&world).await;
    let read = async || {
        let mut transaction = pool.begin().await.expect("a transaction");
        sqlx::query("SELECT count(*) FROM orders").execute(&mut *transaction).await.expect("a snapshot");
        transaction
    };
    let old = read().await;
    assert!(ran(&node.order("order-1").await.expect("it runs")));
    let stale = join(&node.engine, old, intent("order-2")).await;
    assert!(matches!(&stale, Err(error @ Error::StaleSnapshot) if error.is_retryable()), "{stale:?}");
    drop(stale);
    let joined = join(&node.engine, read().await, intent("order-2")).await.expect("joined");
    let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
    // It has the lock: the store's own thread cannot write.
    assert!(node.order("order-3").await.is_err());
    insert(owned.connection(), "2").await;
    owned.succeed(done()).await.expect("recorded").commit().await.expect("committed");
    assert_eq!((world.orders(), world.records()), (2, 2));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_without_durability_is_refused() {
    let (world, other) = (World::new(), World::new());
    let (node, pool) = setup(&world).await;
    let (_, elsewhere) = setup(&other).await;
    let wrong = join(&node.engine, begun(&elsewhere).await, intent("order-1")).await;
    assert!(matches!(&wrong, Err(Error::OtherStore { pool: Some(_), .. })), "{wrong:?}");
    let empty = pool_of(SqliteConnectOptions::new().in_memory(true), 1).await;
    let wrong = join(&node.engine, begun(&empty).await, intent("order-1")).await;
    assert!(matches!(&wrong, Err(Error::OtherStore { pool: None, .. })), "{wrong:?}");
    let mut outer = begun(&pool).await;
    insert(&mut outer, "outer").await;
    let inner = outer.begin().await.expect("a savepoint");
    let nested = join(&node.engine, inner, intent("order-1")).await;
    assert!(
        matches!(&nested, Err(error @ Error::Store(_)) if error.to_string().contains("nested")),
        "{nested:?}"
    );
    drop(nested);
    outer.commit().await.expect("the outer one is as it was");
    assert_eq!((world.orders(), world.records()), (1, 0));
}

/// The engine cannot write the store's ID while the transaction has the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_an_id_is_named_before_anything_runs() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let nameless = join(&node.engine, begun(&pool).await, intent("order-1")).await;
    assert!(
        matches!(&nameless, Err(error @ Error::Store(_)) if error.to_string().contains("Engine::store_id")),
        "{nameless:?}"
    );
    drop(nameless);
    node.engine.store_id().await.expect("now it can");
    drop(owned(&world.node().await, &pool, "order-1").await);
}
