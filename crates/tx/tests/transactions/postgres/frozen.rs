//! A process that is frozen in the middle of its transaction does not hold its key and its rows for good.

use super::world::{World, created, insert_order, intent, intent_with, ran, work};
use crate::process::{Process, acknowledge};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::core::policy::PolicySettings;
use semel::{Attempt, Class, Engine, Intent, RecordedOutcome, Settings, WorkResult};
use semel_test_support::ScratchDir;
use semel_tx::postgres::{Database, Joined, OwnedTransaction, finish_in, join, transact};
use semel_tx::{Error, LocalEnding};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const SCHEMA: &str = "SEMEL_TX_TEST_SCHEMA";
/// The file without which the child does not go on: its threads do not all stop at the same moment.
const MAY_GO_ON: &str = "SEMEL_TX_TEST_MAY_GO_ON";
/// How long the others wait: only a lock that is never released takes longer.
const WAIT: Duration = Duration::from_secs(30);
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

async fn engine(world: &World) -> Engine {
    let settings = Settings { store_timeout: STORE_TIMEOUT, ..Settings::default() };
    world.builder().await.settings(settings).build().await.expect("an engine")
}

/// An order whose work may take two seconds, so that its transaction may be idle for four.
fn hasty() -> Intent {
    intent_with("order-1", "5", |policy: &mut PolicySettings| policy.work_deadline = Duration::from_secs(2))
}

async fn lock_row(connection: &mut PgConnection, schema: &str) {
    let sql =
        format!("INSERT INTO {schema}.counters VALUES ('a', 1) ON CONFLICT (name) DO UPDATE SET value = 1");
    sqlx::query(AssertSqlSafe(sql)).execute(connection).await.expect("written");
}

async fn idle_limit(connection: &mut PgConnection) -> String {
    let shown = sqlx::query("SHOW idle_in_transaction_session_timeout").fetch_one(connection).await;
    shown.expect("an answer").get(0)
}

/// Sends a signal to a process.
fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().expect("kill runs");
    assert!(sent.success());
}

/// What a process has acknowledged, as soon as it is so many.
async fn acknowledged(process: &Process, count: usize) -> Vec<String> {
    for _ in 0..1200 {
        let acknowledged = process.acknowledged();
        if acknowledged.len() >= count {
            return acknowledged;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the process does not answer: {:?}", process.acknowledged())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_process_loses_its_key_and_its_rows() {
    let world = World::new().await;
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "frozen");
    let may_go_on = folder.join("may-go-on");
    let variables = [(SCHEMA, world.schema.as_str()), (MAY_GO_ON, may_go_on.to_str().expect("text"))];
    let frozen = Process::start("postgres::frozen::child", &variables);
    acknowledged(&frozen, 1).await;
    signal("-STOP", frozen.child.id());
    let (engine, database) = (world.engine().await, world.database(2).await);
    let mut row = world.admin.acquire().await.expect("a connection");
    let freed = tokio::time::timeout(WAIT, lock_row(&mut row, &world.schema)).await;
    let answer = retried(&engine, &database, &world).await;
    std::fs::write(&may_go_on, "").expect("written");
    signal("-CONT", frozen.child.id());
    assert!(freed.is_ok(), "its row is still locked");
    assert!(answer.is_ok(), "its key is still taken: {answer:?}");
    // It wakes up, and cannot commit.
    assert_eq!(acknowledged(&frozen, 2).await, ["frozen", "rolled back"]);
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

/// What a client gets for the order, that retries for a while if it cannot be carried out at first: the server may be
/// busy.
async fn retried(engine: &Engine, database: &Database, world: &World) -> Result<RecordedOutcome, Vec<Error>> {
    let mut errors = Vec::new();
    let trying = async {
        loop {
            match transact(engine, database, intent("order-1").waiting(WAIT), world.ordering()).await {
                Ok(answer) => return answer,
                Err(error) if error.is_retryable() => errors.push(error),
                Err(error) => panic!("a retry does not help: {error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let answer = tokio::time::timeout(WAIT, trying).await;
    answer.map_err(|_| errors)
}

/// Is frozen in the middle of its transaction.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of a_frozen_process_loses_its_key_and_its_rows, which starts it"]
async fn child() {
    let Ok(schema) = std::env::var(SCHEMA) else { return };
    let world = World::existing(schema.clone()).await;
    let (engine, database) = (engine(&world).await, world.database(1).await);
    let may_go_on = PathBuf::from(std::env::var_os(MAY_GO_ON).expect("a file"));
    let freezing = work(move |tx, local| {
        let (schema, may_go_on) = (schema.clone(), may_go_on.clone());
        Box::pin(async move {
            insert_order(tx, &schema, local).await?;
            lock_row(tx, &schema).await;
            acknowledge("frozen");
            while !may_go_on.exists() {
                std::thread::sleep(Duration::from_millis(10));
            }
            Ok(created(local))
        })
    });
    let answer = transact(&engine, &database, hasty().waiting(Duration::ZERO), freezing).await;
    acknowledge(if answer.is_ok_and(|answer| ran(&answer)) { "committed" } else { "rolled back" });
    // Until it is killed.
    std::future::pending::<()>().await;
}

async fn owned<'c>(world: &World, engine: &Engine) -> (Database, OwnedTransaction<'c>) {
    let database = world.database(1).await;
    let transaction = database.pool().begin().await.expect("a transaction");
    let joined = join(engine, &database, transaction, hasty()).await.expect("joined");
    let Joined::Owned(owned) = joined else { panic!("{joined:?}") };
    (database, owned)
}

/// A task that is never polled again is like a frozen process.
#[tokio::test(flavor = "multi_thread")]
async fn a_joined_transaction_without_a_next_statement_loses_its_key() {
    let world = World::new().await;
    let (first, second) = (engine(&world).await, world.engine().await);
    let (_pool, mut owned) = owned(&world, &first).await;
    let local = owned.local();
    insert_order(owned.connection(), &world.schema, local).await.expect("written");
    let database = world.database(1).await;
    let answer = retried(&second, &database, &world).await;
    assert!(answer.is_ok(), "its key is still taken: {answer:?}");
    let late = owned.succeed(Outcome::http(201, [("a", "b")], "late")).await;
    assert!(late.is_err(), "{late:?}");
    assert_eq!((world.orders().await, world.records().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ending_that_is_never_committed_releases_its_rows() {
    let world = World::new().await;
    let (engine, database) = (engine(&world).await, world.database(1).await);
    let (node, schema, admin) = (engine.clone(), world.schema.clone(), world.admin.clone());
    let work = move |attempt: Attempt| async move {
        let mut transaction = database.pool().begin().await.expect("a transaction");
        lock_row(&mut transaction, &schema).await;
        let charged = LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"));
        let finish = finish_in(&node, &database, transaction, &attempt, charged).await.expect("written");
        let mut row = admin.acquire().await.expect("a connection");
        let freed = tokio::time::timeout(WAIT, lock_row(&mut row, &schema)).await;
        let late = finish.commit().await;
        WorkResult::new(Ending::InDoubt, freed.is_ok() && late.is_err())
    };
    let charge = intent_with("charge-1", "5", |policy| policy.class = Class::External);
    let answer = engine.execute(charge, work).await.expect("an answer");
    let semel::RequestOutcome::Ran(result) = answer.outcome else { panic!("{answer:?}") };
    assert!(result.local, "the row is still locked, or the late commit succeeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_the_application_stays_if_it_is_stricter() {
    let world = World::new().await;
    let engine = engine(&world).await;
    let limits = [("0", "4s"), ("'1min'", "4s"), ("'3500ms'", "3500ms"), ("'4s'", "4s")];
    for (number, (own, expected)) in limits.into_iter().enumerate() {
        let database = world.database(1).await;
        let mut transaction = database.pool().begin().await.expect("a transaction");
        let sql = format!("SET LOCAL idle_in_transaction_session_timeout = {own}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await.expect("set");
        let order = intent_with(&format!("order-{number}"), "5", |policy: &mut PolicySettings| {
            policy.work_deadline = Duration::from_secs(2);
        });
        let joined = join(&engine, &database, transaction, order).await.expect("joined");
        let Joined::Owned(mut owned) = joined else { panic!("{joined:?}") };
        assert_eq!(idle_limit(owned.connection()).await, expected, "{own}");
        owned.abandon().await.expect("rolled back");
    }
}

/// There is nothing to run in it, so it is the application's again.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_given_back_has_its_own_limit() {
    let world = World::new().await;
    let database = world.database(2).await;
    let first = engine(&world).await;
    assert!(ran(&transact(&first, &database, intent("order-1"), world.ordering()).await.expect("it ran")));
    for own in ["0", "2min", "30s"] {
        let mut transaction = database.pool().begin().await.expect("a transaction");
        let sql = format!("SET LOCAL idle_in_transaction_session_timeout = '{own}'");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *transaction).await.expect("set");
        // It has not seen the order, and looks in the transaction.
        let second = engine(&world).await;
        let joined = join(&second, &database, transaction, intent("order-1")).await.expect("joined");
        let Joined::Answered { mut transaction, .. } = joined else { panic!("{joined:?}") };
        assert_eq!(idle_limit(&mut transaction).await, own);
    }
}
