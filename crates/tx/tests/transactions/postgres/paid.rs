//! The card is charged externally; that outcome and the resulting change commit together.

use super::world::{Events, World, body, intent_with, ran};
use semel::core::classify::Ending;
use semel::core::machine::Erasure;
use semel::core::outcome::Outcome;
use semel::core::record::StateName;
use semel::{Attempt, Class, Engine, ExecuteResponse, Intent, RequestOutcome, WorkResult};
use semel_testkit::faults::Gate;
use semel_testkit::proxy::{Fault, Request, Script};
use semel_tx::postgres::{Database, finish_in};
use semel_tx::{Error, LocalEnding};
use sqlx::{AssertSqlSafe, Postgres, Transaction};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

fn charge(key: &str) -> Intent {
    intent_with(key, "5", |policy| policy.class = Class::External)
}

fn charged() -> LocalEnding {
    LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"))
}

/// The resulting change: the order is paid.
async fn paid<'c>(database: &Database, schema: &str, attempt: &Attempt) -> Transaction<'c, Postgres> {
    let mut transaction = database.pool().begin().await.expect("a transaction");
    let sql = format!("INSERT INTO {schema}.orders (id, item, attempt) VALUES ($1, 'PAID', 1)");
    let insert = sqlx::query(AssertSqlSafe(sql)).bind(attempt.operation_id().to_string());
    insert.execute(&mut *transaction).await.expect("written");
    transaction
}

/// Charges, and stores that together with the order; ends in doubt if that fails `tries` times.
async fn charge_and_pay(
    world: &World,
    engine: &Engine,
    database: &Database,
    key: &str,
    tries: u32,
) -> ExecuteResponse {
    let (schema, node, database) = (world.schema.clone(), engine.clone(), database.clone());
    let work = move |attempt: Attempt| async move {
        for _ in 0..tries {
            let transaction = paid(&database, &schema, &attempt).await;
            let finish = match finish_in(&node, &database, transaction, &attempt, charged()).await {
                Ok(finish) => finish.commit().await,
                Err(error) => Err(error),
            };
            match finish {
                // The transaction has decided the ending, whatever is returned from here on.
                Ok(()) => return WorkResult::from(Ending::NotApplied(None)),
                Err(Error::Overtaken(_)) => break,
                Err(_) => {}
            }
        }
        WorkResult::from(Ending::InDoubt)
    };
    engine.execute(charge(key), work).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_and_the_change_that_follows_commit_together() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(2).await;
    let answer = charge_and_pay(&world, &engine, &database, "charge-1", 1).await;
    assert!(ran(&answer) && body(&answer) == "charged", "{answer:?}");
    assert_eq!(world.record(&engine, &answer).await.state_name(), StateName::Succeeded);
    let again = charge_and_pay(&world, &world.engine().await, &database, "charge-1", 1).await;
    assert!(!ran(&again) && body(&again) == "charged");
    assert_eq!(world.orders().await, 1);
    assert_eq!(["Finished", "Fenced", "LeaseLost"].map(|name| events.of(name)), [1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_is_settled_and_a_lost_commit_retried() {
    let world = World::new().await;
    let (engine, (database, proxy)) = (world.engine().await, world.proxied(2).await);
    for (key, fault) in [("charge-1", Fault::CutAfter), ("charge-2", Fault::CutBefore)] {
        proxy.set_plan(Script::of(b"COMMIT\0", [fault]));
        let answer = charge_and_pay(&world, &engine, &database, key, 2).await;
        assert!(ran(&answer) && body(&answer) == "charged", "{key}: {answer:?}");
    }
    assert_eq!((world.orders().await, world.records().await), (2, 2));
}

/// The answer to the commit is lost, and before the connection is back an operator has erased the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_was_erased_since_is_not_rolled_back() {
    let world = World::new().await;
    let (engine, (database, proxy)) = (world.engine().await, world.proxied(2).await);
    let (schema, node, operator) = (world.schema.clone(), engine.clone(), world.engine().await);
    let gate = Gate::default();
    // A panic of the work would be its outcome, and not the test's.
    let (sender, receiver) = mpsc::channel();
    let work = move |attempt: Attempt| async move {
        let transaction = paid(&database, &schema, &attempt).await;
        let finish = finish_in(&node, &database, transaction, &attempt, charged()).await.expect("written");
        let (is_cut, held) = (AtomicBool::new(false), gate.clone());
        proxy.set_plan(move |request: &Request<'_>| match is_cut.load(Ordering::Relaxed) {
            true => Fault::DelayRequest(held.pause()),
            false if request.contains(b"COMMIT\0") => {
                is_cut.store(true, Ordering::Relaxed);
                Fault::CutAfter
            }
            false => Fault::Pass,
        });
        let erasing = async {
            let id = attempt.operation_id();
            while operator.look_up(id).await.expect("a record").record.state_name() != StateName::Succeeded {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            operator.erase(id, Erasure::Record, "operator", "asked to").await.expect("erased");
            gate.open();
        };
        let (committed, ()) = tokio::join!(finish.commit(), erasing);
        sender.send(committed).expect("the test waits for it");
        WorkResult::from(Ending::InDoubt)
    };
    let answer = engine.execute(charge("charge-1"), work).await.expect("an answer");
    let committed = receiver.recv().expect("it was committed");
    assert!(matches!(committed, Err(Error::CommitInDoubt { .. })), "{committed:?}");
    assert_eq!(world.orders().await, 1, "{answer:?}");
    let again =
        engine.execute(charge("charge-1"), |_| async { WorkResult::from(Ending::NotApplied(None)) }).await;
    assert!(matches!(&again, Ok(ExecuteResponse { outcome: RequestOutcome::Expired, .. })), "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finish_given_up_is_in_doubt_and_changes_nothing() {
    let world = World::new().await;
    let (engine, (database, proxy)) = (world.engine().await, world.proxied(2).await);
    proxy.set_plan(Script::of(b"COMMIT\0", [Fault::CutBefore]));
    let answer = charge_and_pay(&world, &engine, &database, "charge-1", 1).await;
    let RequestOutcome::Ran(result) = &answer.outcome else { panic!("{answer:?}") };
    assert!(matches!(result.ending, Ending::InDoubt));
    assert_eq!(world.record(&engine, &answer).await.state_name(), StateName::Unknown);
    assert_eq!(world.orders().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_renewed_only_outside_the_transaction() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let (schema, node, pool) = (world.schema.clone(), engine.clone(), database.clone());
    let admin = world.admin.clone();
    let short = intent_with("charge-1", "5", |policy| {
        policy.class = Class::External;
        policy.lease = Duration::from_secs(15);
    });
    let versions = move || {
        let (schema, admin) = (schema.clone(), admin.clone());
        async move {
            let sql = format!("SELECT version FROM {schema}.records WHERE version IS NOT NULL");
            let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&admin).await.expect("a record");
            sqlx::Row::get::<i64, _>(&row, 0)
        }
    };
    let schema = world.schema.clone();
    let work = move |attempt: Attempt| async move {
        let transaction = paid(&pool, &schema, &attempt).await;
        let finish = finish_in(&node, &pool, transaction, &attempt, charged()).await.expect("written");
        let before = versions().await;
        // Longer than a third of the lease.
        tokio::time::sleep(Duration::from_millis(5_500)).await;
        let during = versions().await;
        drop(finish);
        let mut after = during;
        for _ in 0..200 {
            after = versions().await;
            if after != during {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        attempt.check().expect("still owned");
        let transaction = paid(&pool, &schema, &attempt).await;
        let finish = finish_in(&node, &pool, transaction, &attempt, charged()).await.expect("written");
        finish.commit().await.expect("committed");
        WorkResult::new(Ending::InDoubt, (before, during, after))
    };
    let answer = engine.execute(short, work).await.expect("an answer");
    let RequestOutcome::Ran(result) = answer.outcome else { panic!("{answer:?}") };
    assert!(matches!(result.ending, Ending::Succeeded(_)), "what was committed counts");
    let (before, during, after) = result.local;
    assert_eq!(before, during);
    assert!(after > during, "renewed again: {before}, {during}, {after}");
    assert_eq!(world.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_settled_by_another_changes_nothing() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let (schema, node, pool) = (world.schema.clone(), engine.clone(), database.clone());
    let admin = world.admin.clone();
    let (sender, receiver) = mpsc::channel();
    let work = move |attempt: Attempt| async move {
        let transaction = paid(&pool, &schema, &attempt).await;
        // The record belongs to another attempt.
        let sql =
            format!("UPDATE {schema}.records SET token = gen_random_uuid(), entry = entry || '\\x00'::bytea");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&admin).await.expect("changed");
        let refused = finish_in(&node, &pool, transaction, &attempt, charged()).await.map(drop);
        sender.send(refused).expect("the test waits for it");
        WorkResult::from(Ending::InDoubt)
    };
    let answer = engine.execute(charge("charge-1"), work).await.expect("an answer");
    let refused = receiver.recv().expect("it was tried");
    assert!(matches!(&refused, Err(Error::Overtaken(_))), "{refused:?}");
    assert!(!matches!(answer.outcome, RequestOutcome::Replayed(_)), "{answer:?}");
    assert_eq!(world.orders().await, 0);
}
