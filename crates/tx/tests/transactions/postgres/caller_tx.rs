//! Transactions that the caller has opened itself.

use super::world::{Events, World, body, insert_order, intent, ran};
use semel::core::outcome::Outcome;
use semel::core::record::StateName;
use semel::{Engine, RecordedOutcome, Refusal, RefusalReason};
use semel_tx::Error;
use semel_tx::postgres::{Database, Joined, OwnedTransaction, join, transact};
use sqlx::Connection as _;
use std::time::Duration;

async fn joined<'c>(engine: &Engine, database: &Database, key: &str) -> Joined<'c> {
    let transaction = database.pool().begin().await.expect("a transaction");
    join(engine, database, transaction, intent(key)).await.expect("an answer")
}

async fn owned<'c>(engine: &Engine, database: &Database, key: &str) -> OwnedTransaction<'c> {
    // sqlx rolls back a dropped transaction in the background: until then the server considers it a
    // duplicate.
    for _ in 0..200 {
        match joined(engine, database, key).await {
            Joined::Owned(owned) => return owned,
            Joined::Answered { answer, .. } => {
                let refusal = answer.expect_err("it has not run");
                assert!(matches!(refusal.reason, RefusalReason::InProgress { .. }), "{refusal:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{key} stays in progress")
}

async fn answered(engine: &Engine, database: &Database, key: &str) -> Result<RecordedOutcome, Refusal> {
    match joined(engine, database, key).await {
        Joined::Owned(owned) => panic!("{owned:?}"),
        Joined::Answered { answer, transaction } => {
            transaction.rollback().await.expect("it is the caller's own");
            answer
        }
    }
}

fn done() -> Outcome {
    Outcome::http(201, [("a", "b")], "created")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_joined_transaction_commits_effect_and_record() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(4).await);
    let mut owned = owned(&engine, &database, "order-1").await;
    let local = owned.local();
    insert_order(owned.connection(), &world.schema, local).await.expect("written");
    assert_eq!((world.orders().await, world.records().await), (0, 0));
    let answer = owned.succeed(done()).await.expect("recorded").commit().await.expect("committed");
    assert!(ran(&answer) && answer.operation_id == local.operation_id);
    for engine in [&engine, &world.engine().await] {
        let again = answered(engine, &database, "order-1").await.expect("it ran");
        assert!(!ran(&again) && body(&again) == "created");
    }
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_undoes_what_the_transaction_wrote() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(4).await);
    let mut owned = owned(&engine, &database, "order-1").await;
    let local = owned.local();
    insert_order(owned.connection(), &world.schema, local).await.expect("written");
    let refusal = Outcome::http(422, [("a", "b")], "sold out");
    let answer = owned.refuse(refusal).await.expect("recorded").commit().await.expect("committed");
    assert!(!answer.succeeded && body(&answer) == "sold out");
    assert_eq!(world.orders().await, 0);
    let refusal = answered(&world.engine().await, &database, "order-1").await.expect_err("it was refused");
    assert!(
        matches!(&refusal.reason, RefusalReason::Failed(again) if body(&**again) == "sold out"),
        "{refusal:?}"
    );
    assert_eq!(world.record(&engine, &answer).await.state_name(), StateName::FailedReplayable);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_ending_is_rolled_back_and_reported() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(4).await;
    let mut forgotten = owned(&engine, &database, "order-1").await;
    let local = forgotten.local();
    insert_order(forgotten.connection(), &world.schema, local).await.expect("written");
    drop(forgotten);
    assert_eq!(events.of("Unfinished"), 1);
    // So is one that was recorded and never committed.
    let recorded = owned(&engine, &database, "order-1").await.succeed(done()).await.expect("recorded");
    drop(recorded);
    let given_up = owned(&engine, &database, "order-1").await;
    given_up.abandon().await.expect("rolled back");
    assert_eq!(events.of("Unfinished"), 1, "giving up is not an error");
    assert!(ran(&world.order(&engine, &database, "order-1").await.expect("it ran")));
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicates_are_refused_while_open_and_woken_by_the_commit() {
    let world = World::new().await;
    let (engine, other) = (world.engine().await, world.engine().await);
    let database = world.database(6).await;
    let owned = owned(&engine, &database, "order-1").await;
    for engine in [&engine, &other] {
        let refusal = answered(engine, &database, "order-1").await.expect_err("it runs");
        assert!(matches!(refusal.reason, RefusalReason::InProgress { .. }), "{refusal:?}");
    }
    let waiting = |engine: &Engine| {
        let (engine, database, work) = (engine.clone(), database.clone(), world.ordering());
        let patient = intent("order-1").waiting(Duration::from_secs(30));
        tokio::spawn(async move { transact(&engine, &database, patient, work).await })
    };
    let waiters = [waiting(&engine), waiting(&other)];
    tokio::time::sleep(Duration::from_millis(200)).await;
    let (transaction, pending) = owned.succeed(done()).await.expect("recorded").into_parts();
    transaction.commit().await.expect("committed by other means");
    assert!(ran(&pending.committed()));
    for waiter in waiters {
        let answer = waiter.await.expect("no panic").expect("an answer");
        assert!(!ran(&answer) && body(&answer) == "created");
    }
    assert_eq!((world.orders().await, world.records().await), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_that_is_too_old_is_a_retryable_error() {
    for level in ["REPEATABLE READ", "SERIALIZABLE"] {
        let world = World::new().await;
        let (engine, other) = (world.engine().await, world.engine().await);
        let database = world.database(4).await;
        let mut transaction = database.pool().begin().await.expect("a transaction");
        let set = format!("SET TRANSACTION ISOLATION LEVEL {level}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut *transaction).await.expect("set");
        // Its snapshot is taken here; then another node runs the command.
        sqlx::query("SELECT 1").execute(&mut *transaction).await.expect("a snapshot");
        world.order(&other, &database, "order-1").await.expect("it ran");
        let joined = join(&engine, &database, transaction, intent("order-1")).await.expect("an answer");
        let Joined::Owned(mut owned) = joined else { panic!("{level}: the record is not in its snapshot") };
        let local = owned.local();
        insert_order(owned.connection(), &world.schema, local).await.expect("written");
        let stale = owned.succeed(done()).await;
        let Err(error) = stale else { panic!("{level}: it was recorded twice") };
        assert!(matches!(error, Error::StaleSnapshot) && error.is_retryable(), "{level}: {error:?}");
        assert!(!ran(&answered(&engine, &database, "order-1").await.expect("it ran")));
        assert_eq!((world.orders().await, world.records().await), (1, 1), "{level}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_transaction_is_refused_and_the_outer_continues() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let mut outer = database.pool().begin().await.expect("a transaction");
    let insert = format!("INSERT INTO {}.orders (id) VALUES ('outer')", world.schema);
    sqlx::raw_sql(sqlx::AssertSqlSafe(insert)).execute(&mut *outer).await.expect("written");
    let inner = outer.begin().await.expect("a savepoint");
    let nested = join(&engine, &database, inner, intent("order-1")).await;
    assert!(
        matches!(&nested, Err(error @ Error::Store(_)) if error.to_string().contains("nested")),
        "{nested:?}"
    );
    drop(nested);
    outer.commit().await.expect("the outer one is intact");
    assert_eq!((world.orders().await, world.records().await), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_nested_transaction_left_open_commits_nothing() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let mut owned = owned(&engine, &database, "order-1").await;
    let local = owned.local();
    insert_order(owned.connection(), &world.schema, local).await.expect("written");
    std::mem::forget(owned.connection().begin().await.expect("a savepoint"));
    let left = owned.succeed(done()).await;
    assert!(matches!(&left, Err(Error::TransactionLeft(_))), "{left:?}");
    drop(left);
    assert_eq!((world.orders().await, world.records().await), (0, 0));
    let again = self::owned(&engine, &database, "order-1").await;
    assert!(ran(&again.succeed(done()).await.expect("recorded").commit().await.expect("committed")));
}
