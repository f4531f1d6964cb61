//! Local commands on the application's own connection.

use super::world::{Events, Node, World, body, failed, intent, ran};
use semel::core::outcome::Outcome;
use semel_tx::Error;
use semel_tx::sqlite::own::{Begun, OwnedTransaction, begin};
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Sqlite, SqlitePool};
use std::time::Duration;

pub(crate) async fn pool(world: &World, connections: u32) -> SqlitePool {
    pool_of(SqliteConnectOptions::new().filename(world.path()), connections).await
}

pub(crate) async fn pool_of(options: SqliteConnectOptions, connections: u32) -> SqlitePool {
    let options = options.busy_timeout(Duration::from_secs(20));
    SqlitePoolOptions::new().max_connections(connections).connect_with(options).await.expect("the file opens")
}

type OwnConnection = PoolConnection<Sqlite>;

async fn connection_of(pool: &SqlitePool) -> OwnConnection {
    pool.acquire().await.expect("a connection")
}

async fn owned<'c>(node: &Node, connection: &'c mut OwnConnection, key: &str) -> OwnedTransaction<'c> {
    match begin(&node.engine, connection, intent(key)).await.expect("begun") {
        Begun::Owned(owned) => owned,
        Begun::Answered(answer) => panic!("{answer:?}"),
    }
}

async fn insert(owned: &mut OwnedTransaction<'_>) {
    let id = owned.local().operation_id.to_string();
    let insert = sqlx::query("INSERT INTO orders (id, item) VALUES (?1, 'book')").bind(id);
    insert.execute(owned.connection()).await.expect("inserted");
}

fn outcome(status: u16, body: &'static str) -> Outcome {
    Outcome::http(status, [("a", "b")], body)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_on_the_applications_connection_commits_with_its_record() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 2).await);
    let (mut one, mut other) = (connection_of(&pool).await, connection_of(&pool).await);
    let mut first = owned(&node, &mut one, "order-1").await;
    insert(&mut first).await;
    assert_eq!((world.orders(), world.records()), (0, 0), "nothing before the commit");
    let recorded = first.succeed(outcome(201, "created")).await.expect("written");
    let answer = recorded.commit().await.expect("committed");
    assert!(ran(&answer) && body(&answer) == "created");
    assert_eq!((world.orders(), world.records()), (1, 1));
    // In both modes it is replayed.
    let again = node.order("order-1").await.expect("replayed");
    assert!(!ran(&again) && body(&again) == "created");
    let elsewhere = world.node().await;
    let answered = begin(&elsewhere.engine, &mut other, intent("order-1")).await.expect("an answer");
    assert!(matches!(&answered, Begun::Answered(Ok(answer)) if answer.replayed), "{answered:?}");
    drop(answered);
    // Both connections are usable, and the store continues to write.
    for (connection, key) in [(&mut one, "order-2"), (&mut other, "order-4")] {
        let mut next = owned(&node, connection, key).await;
        insert(&mut next).await;
        next.succeed(outcome(201, "created")).await.expect("written").commit().await.expect("committed");
    }
    assert!(ran(&node.order("order-3").await.expect("it runs")));
    assert_eq!((world.orders(), world.records()), (4, 4));
    world.assert_sound(&node).await;
}

/// SQLite ends a transaction by itself on some errors. Later writes would be committed at once, without the
/// order.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_sqlite_has_ended_records_nothing() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let mut connection = connection_of(&pool).await;
    sqlx::query("INSERT INTO customers VALUES ('ann')").execute(&mut *connection).await.expect("inserted");
    let mut first = owned(&node, &mut connection, "order-1").await;
    insert(&mut first).await;
    let taken =
        sqlx::query("INSERT OR ROLLBACK INTO customers VALUES ('ann')").execute(first.connection()).await;
    assert!(taken.is_err(), "{taken:?}");
    let recorded = first.succeed(outcome(201, "created")).await;
    assert!(matches!(recorded, Err(Error::TransactionLeft(_))), "{recorded:?}");
    assert_eq!((world.orders(), world.records()), (0, 0));
    assert!(ran(&node.order("order-1").await.expect("it runs")));
    assert_eq!((world.orders(), world.records()), (1, 1));
    world.assert_sound(&node).await;
}

/// sqlx rolls everything back when the `begin` of a nested transaction is dropped.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_dropped_nested_begin_nothing_is_left_open() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let mut connection = connection_of(&pool).await;
    let mut dropped = owned(&node, &mut connection, "order-1").await;
    insert(&mut dropped).await;
    // Unless the answer is there at the first look.
    let mut is_done = true;
    while is_done {
        let mut nesting = std::pin::pin!(dropped.connection().begin());
        is_done =
            std::future::poll_fn(|context| std::task::Poll::Ready(nesting.as_mut().poll(context).is_ready()))
                .await;
    }
    let left = dropped.succeed(outcome(201, "created")).await.map(drop);
    assert!(matches!(left, Err(Error::TransactionLeft(_))), "{left:?}");
    assert_eq!((world.orders(), world.records()), (0, 0));
    sqlx::query("INSERT INTO orders (id, item) VALUES ('7', 'book')")
        .execute(&mut *connection)
        .await
        .expect("inserted");
    assert_eq!(world.orders(), 1, "no transaction is open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_on_the_applications_connection_undoes_its_writes() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let mut connection = connection_of(&pool).await;
    let mut owned = owned(&node, &mut connection, "order-1").await;
    insert(&mut owned).await;
    let answer = owned.refuse(outcome(422, "no")).await.expect("written").commit().await.expect("committed");
    assert!(ran(&answer) && body(&answer) == "no");
    assert_eq!((world.orders(), world.records()), (0, 1));
    assert_eq!(body(&failed(node.order("order-1").await)), "no");
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_ending_is_rolled_back_and_reported() {
    let (world, events) = (World::new(), Events::default());
    let node = Node::on(&world.path(), |builder| builder.observer(events.clone())).await;
    let pool = pool(&world, 1).await;
    let mut connection = connection_of(&pool).await;
    let mut forgotten = owned(&node, &mut connection, "order-1").await;
    insert(&mut forgotten).await;
    drop(forgotten);
    assert_eq!(events.of("Unfinished"), 1);
    let mut given_up = owned(&node, &mut connection, "order-1").await;
    insert(&mut given_up).await;
    given_up.abandon().await.expect("rolled back");
    assert_eq!((events.of("Unfinished"), world.orders(), world.records()), (1, 0, 0));
    assert!(ran(&node.order("order-1").await.expect("it runs")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_without_durability_is_refused() {
    let (world, other) = (World::new(), World::new());
    let node = world.node().await;
    other.node().await.engine.store_id().await.expect("it has one");
    let refused = async |pool: &SqlitePool| {
        let mut connection = connection_of(pool).await;
        begin(&node.engine, &mut connection, intent("order-1")).await.err()
    };
    let elsewhere = refused(&pool(&other, 1).await).await;
    assert!(matches!(&elsewhere, Some(Error::OtherStore { pool: Some(_), .. })), "{elsewhere:?}");
    let empty = refused(&pool_of(SqliteConnectOptions::new().in_memory(true), 1).await).await;
    assert!(matches!(&empty, Some(Error::OtherStore { pool: None, .. })), "{empty:?}");
    let careless = SqliteConnectOptions::new().filename(world.path()).synchronous(SqliteSynchronous::Normal);
    let careless = refused(&pool_of(careless, 1).await).await;
    assert!(
        matches!(&careless, Some(error @ Error::Store(_)) if error.to_string().contains("synchronous")),
        "{careless:?}"
    );
    let pool = pool(&world, 1).await;
    let mut connection = connection_of(&pool).await;
    let mut outer = connection.begin().await.expect("begun");
    let nested = begin(&node.engine, &mut outer, intent("order-1")).await.err();
    assert!(
        matches!(&nested, Some(error @ Error::Store(_)) if error.to_string().contains("open already")),
        "{nested:?}"
    );
    drop(outer);
    assert_eq!((world.orders(), world.records()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deferred_violation_is_known_to_be_rolled_back() {
    let world = World::new();
    let (node, pool) = (world.node().await, pool(&world, 1).await);
    let mut connection = connection_of(&pool).await;
    let mut violating = owned(&node, &mut connection, "order-1").await;
    insert(&mut violating).await;
    let address = sqlx::query("INSERT INTO addresses VALUES ('nobody')");
    address.execute(violating.connection()).await.expect("not checked yet");
    let recorded = violating.succeed(outcome(201, "created")).await.expect("written");
    let failed = recorded.commit().await;
    assert!(matches!(&failed, Err(Error::Database(_))), "{failed:?}");
    assert_eq!((world.orders(), world.records()), (0, 0));
    assert!(ran(&node.order("order-1").await.expect("it runs")));
}

/// Both modes at once, from two processes: one effect each.
#[tokio::test(flavor = "multi_thread")]
async fn application_connections_and_the_store_run_each_command_once() {
    let world = World::new();
    let nodes = [world.node().await, world.node().await];
    let pool = pool(&world, 4).await;
    let mut calls = tokio::task::JoinSet::new();
    for key in 0..60 {
        for (mode, node) in nodes.iter().cycle().take(4).cloned().enumerate() {
            let (pool, key) = (pool.clone(), format!("order-{key}"));
            calls.spawn(async move {
                for _ in 0..50 {
                    let answer = if mode < 2 {
                        node.transact(intent(&key).waiting(Duration::from_secs(20)), super::world::ordering)
                            .await
                    } else {
                        let mut connection = connection_of(&pool).await;
                        match begin(&node.engine, &mut connection, intent(&key)).await {
                            Ok(Begun::Owned(mut owned)) => {
                                insert(&mut owned).await;
                                match owned.succeed(outcome(201, "created")).await {
                                    Ok(recorded) => recorded.commit().await,
                                    Err(error) => Err(error),
                                }
                            }
                            Ok(Begun::Answered(answer)) => answer.map_err(Error::from),
                            Err(error) => Err(error),
                        }
                    };
                    match answer {
                        Ok(answer) => return (ran(&answer), body(&answer)),
                        Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
                panic!("{key} has no outcome")
            });
        }
    }
    let answers = calls.join_all().await;
    assert!(answers.iter().all(|(_, body)| body == "created"));
    assert_eq!(answers.iter().filter(|(ran, _)| *ran).count(), 60);
    assert_eq!((world.orders(), world.records()), (60, 60));
    world.assert_sound(&nodes[0]).await;
}
