//! A record that was written long ago is not committed: others may use another hashing secret by now.

use super::world::{World, body, insert_order, intent, intent_with, ran};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::{Attempt, Class, Engine, RequestOutcome, Settings, WorkResult};
use semel_tx::postgres::{Database, Joined, Recorded, finish_in, join};
use semel_tx::{Error, LocalEnding};
use sqlx::AssertSqlSafe;
use std::time::Duration;

/// Long enough for everything that has to be in time on a busy machine.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

async fn engine(world: &World) -> Engine {
    let settings = Settings { store_timeout: STORE_TIMEOUT, ..Settings::default() };
    world.builder().await.settings(settings).build().await.expect("an engine")
}

fn done() -> Outcome {
    Outcome::http(201, [("a", "b")], "created")
}

async fn recorded<'c>(world: &World, engine: &Engine, database: &Database) -> Recorded<'c> {
    let transaction = database.pool().begin().await.expect("a transaction");
    let joined = join(engine, database, transaction, intent("order-1")).await.expect("joined");
    let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
    let local = owned.local();
    insert_order(owned.connection(), &world.schema, local).await.expect("written");
    owned.succeed(done()).await.expect("recorded")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_held_open_too_long_is_rolled_back() {
    let world = World::new().await;
    let (engine, database) = (engine(&world).await, world.database(1).await);
    let held = recorded(&world, &engine, &database).await;
    tokio::time::sleep(STORE_TIMEOUT).await;
    let late = held.commit().await;
    assert!(matches!(&late, Err(error @ Error::CommitTooLate) if error.is_retryable()), "{late:?}");
    assert_eq!((world.orders().await, world.records().await), (0, 0));
    // The pool's only connection is free and has nothing open.
    let answer = recorded(&world, &engine, &database).await.commit().await.expect("in time");
    assert!(ran(&answer) && body(&answer) == "created");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_by_other_means_still_times_out() {
    let world = World::new().await;
    let (engine, database) = (engine(&world).await, world.database(1).await);
    let (transaction, pending) = recorded(&world, &engine, &database).await.into_parts();
    assert!(pending.time_left() > Duration::ZERO);
    tokio::time::sleep(STORE_TIMEOUT).await;
    assert_eq!(pending.time_left(), Duration::ZERO);
    transaction.rollback().await.expect("rolled back");
    drop(pending);
    assert!(ran(&recorded(&world, &engine, &database).await.commit().await.expect("in time")));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_held_open_too_long_is_rolled_back_and_retryable() {
    let world = World::new().await;
    let (engine, database) = (engine(&world).await, world.database(1).await);
    let (node, schema) = (engine.clone(), world.schema.clone());
    let work = move |attempt: Attempt| async move {
        let mut late = Vec::new();
        for hold in [STORE_TIMEOUT, Duration::ZERO] {
            let mut transaction = database.pool().begin().await.expect("a transaction");
            let sql = format!("INSERT INTO {schema}.orders (id, item, attempt) VALUES ('1', 'PAID', 1)");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await.expect("written");
            let charged = LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"));
            let finish = finish_in(&node, &database, transaction, &attempt, charged).await.expect("written");
            tokio::time::sleep(hold).await;
            late.push(finish.commit().await.err());
        }
        WorkResult::new(Ending::InDoubt, late)
    };
    let charge = intent_with("charge-1", "5", |policy| policy.class = Class::External);
    let answer = engine.execute(charge, work).await.expect("an answer");
    let RequestOutcome::Ran(result) = answer.outcome else { panic!("{answer:?}") };
    assert!(matches!(&result.local[..], [Some(Error::CommitTooLate), None]), "{:?}", result.local);
    assert!(matches!(result.ending, Ending::Succeeded(_)), "what was committed counts");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}
