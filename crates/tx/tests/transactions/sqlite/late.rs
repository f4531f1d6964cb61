//! A record that was written long ago is not committed: others may use another hashing secret by now.

use super::own::pool;
use super::paid::charge;
use super::world::{Node, World, body, intent, ran};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::{Attempt, RequestOutcome, Settings, WorkResult};
use semel_tx::sqlite::own::{Joined, Recorded, finish_in, join};
use semel_tx::{Error, LocalEnding};
use sqlx::SqlitePool;
use std::time::Duration;

const STORE_TIMEOUT: Duration = Duration::from_secs(1);

async fn node(world: &World) -> Node {
    let settings = Settings { store_timeout: STORE_TIMEOUT, ..Settings::default() };
    let node = Node::on(&world.path(), |builder| builder.settings(settings)).await;
    node.engine.store_id().await.expect("it has one");
    node
}

async fn recorded(node: &Node, pool: &SqlitePool) -> Recorded<'static> {
    let transaction = pool.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
    let joined = join(&node.engine, transaction, intent("order-1")).await.expect("joined");
    let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
    let insert = sqlx::query("INSERT INTO orders (id, item) VALUES ('1', 'book')");
    insert.execute(owned.connection()).await.expect("inserted");
    owned.succeed(Outcome::http(201, [("a", "b")], "created")).await.expect("recorded")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_held_open_too_long_is_rolled_back() {
    let world = World::new();
    let (node, pool) = (node(&world).await, pool(&world, 1).await);
    let held = recorded(&node, &pool).await;
    tokio::time::sleep(STORE_TIMEOUT).await;
    let late = held.commit().await;
    assert!(matches!(&late, Err(error @ Error::CommitTooLate) if error.is_retryable()), "{late:?}");
    assert_eq!((world.orders(), world.records()), (0, 0));
    // The pool's only connection is free and has nothing open.
    let answer = recorded(&node, &pool).await.commit().await.expect("in time");
    assert!(ran(&answer) && body(&answer) == "created");
    assert_eq!((world.orders(), world.records()), (1, 1));
    world.assert_sound(&node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_held_open_too_long_is_rolled_back_and_retryable() {
    let world = World::new();
    let (node, pool) = (node(&world).await, pool(&world, 1).await);
    let engine = node.engine.clone();
    let work = move |attempt: Attempt| async move {
        let mut late = Vec::new();
        for hold in [STORE_TIMEOUT, Duration::ZERO] {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.expect("a transaction");
            let insert = sqlx::query("INSERT INTO orders (id, item) VALUES ('1', 'PAID')");
            insert.execute(&mut *transaction).await.expect("inserted");
            let charged = LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"));
            let finish = finish_in(&engine, transaction, &attempt, charged).await.expect("written");
            tokio::time::sleep(hold).await;
            late.push(finish.commit().await.err());
        }
        WorkResult::new(Ending::InDoubt, late)
    };
    let answer = node.engine.execute(charge("charge-1"), work).await.expect("an answer");
    let RequestOutcome::Ran(result) = answer.outcome else { panic!("{answer:?}") };
    assert!(matches!(&result.local[..], [Some(Error::CommitTooLate), None]), "{:?}", result.local);
    assert!(matches!(result.ending, Ending::Succeeded(_)), "what was committed counts");
    assert_eq!((world.orders(), world.records()), (1, 1));
}
