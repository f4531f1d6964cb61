//! The card is charged elsewhere; that it was, and what follows from it, commit together.

use crate::world::{Events, World, address_in, body, intent_with, ran, url};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::core::record::StateName;
use semel::{Answer, Attempt, Class, Ended, Engine, Intent, RequestOutcome};
use semel_testkit::proxy::{Fault, FaultProxy, Protocol, Request, Script};
use semel_tx::postgres::{Database, finish_in};
use semel_tx::{Error, LocalEnding};
use sqlx::{AssertSqlSafe, Postgres, Transaction};
use std::time::Duration;

fn charge(key: &str) -> Intent {
    intent_with(key, "5", |policy| policy.class = Class::External)
}

fn charged() -> LocalEnding {
    LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "charged"))
}

/// The change that follows: the order is paid.
async fn paid<'c>(database: &Database, schema: &str, attempt: &Attempt) -> Transaction<'c, Postgres> {
    let mut transaction = database.pool().begin().await.expect("a transaction");
    let sql = format!("INSERT INTO {schema}.orders (id, item, attempt) VALUES ($1, 'PAID', 1)");
    let insert = sqlx::query(AssertSqlSafe(sql)).bind(attempt.operation_id().to_string());
    insert.execute(&mut *transaction).await.expect("written");
    transaction
}

/// Charges, and stores that together with the order; ends in doubt where that fails `tries` times.
async fn charge_and_pay(
    world: &World,
    engine: &Engine,
    database: &Database,
    key: &str,
    tries: u32,
) -> Answer {
    let (schema, node, database) = (world.schema.clone(), engine.clone(), database.clone());
    let work = move |attempt: Attempt| async move {
        for _ in 0..tries {
            let transaction = paid(&database, &schema, &attempt).await;
            let finish = match finish_in(&node, &database, transaction, &attempt, charged()).await {
                Ok(finish) => finish.commit().await,
                Err(error) => Err(error),
            };
            match finish {
                // Whatever is returned from here on, the transaction has said it.
                Ok(()) => return Ended::from(Ending::NotApplied(None)),
                Err(Error::Overtaken(_)) => break,
                Err(_) => {}
            }
        }
        Ended::from(Ending::InDoubt)
    };
    engine.execute(charge(key), work).await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_and_the_change_that_follows_commit_together() {
    let world = World::new().await;
    let events = Events::default();
    let engine = world.builder().await.observer(events.clone()).build().await.expect("an engine");
    let database = world.database(2).await;
    let told = charge_and_pay(&world, &engine, &database, "charge-1", 1).await;
    assert!(ran(&told) && body(&told) == "charged", "{told:?}");
    assert_eq!(world.record(&engine, &told).await.state_name(), StateName::Succeeded);
    let again = charge_and_pay(&world, &world.engine().await, &database, "charge-1", 1).await;
    assert!(!ran(&again) && body(&again) == "charged");
    assert_eq!(world.orders().await, 1);
    assert_eq!(["Finished", "Fenced", "LeaseLost"].map(|name| events.of(name)), [1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_to_the_commit_is_settled_and_a_lost_commit_tried_again() {
    let world = World::new().await;
    let server = address_in(&url());
    let proxy =
        FaultProxy::start(server, Protocol::Postgres, |_: &Request<'_>| Fault::Pass).await.expect("a port");
    let through = url().replace(&server.to_string(), &proxy.address().to_string());
    let database = world.database_at(&through, 2).await;
    let engine = world.engine().await;
    for (key, fault) in [("charge-1", Fault::CutAfter), ("charge-2", Fault::CutBefore)] {
        proxy.set_plan(Script::of(b"COMMIT\0", [fault]));
        let told = charge_and_pay(&world, &engine, &database, key, 2).await;
        assert!(ran(&told) && body(&told) == "charged", "{key}: {told:?}");
    }
    assert_eq!((world.orders().await, world.records().await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_it_ends_in_doubt_and_nothing_followed() {
    let world = World::new().await;
    let server = address_in(&url());
    let proxy =
        FaultProxy::start(server, Protocol::Postgres, |_: &Request<'_>| Fault::Pass).await.expect("a port");
    let through = url().replace(&server.to_string(), &proxy.address().to_string());
    let (engine, database) = (world.engine().await, world.database_at(&through, 2).await);
    proxy.set_plan(Script::of(b"COMMIT\0", [Fault::CutBefore]));
    let told = charge_and_pay(&world, &engine, &database, "charge-1", 1).await;
    let RequestOutcome::Ran(told_ran) = &told.outcome else { panic!("{told:?}") };
    assert!(matches!(told_ran.ending, Ending::InDoubt));
    assert_eq!(world.record(&engine, &told).await.state_name(), StateName::Unknown);
    assert_eq!(world.orders().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_not_renewed_while_the_transaction_is_open_and_is_again_after_a_rollback() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let (schema, node, pool) = (world.schema.clone(), engine.clone(), database.clone());
    let admin = world.admin.clone();
    let short = intent_with("charge-1", "5", |policy| {
        policy.class = Class::External;
        policy.lease = Duration::from_millis(900);
    });
    let versions = move || {
        let (schema, admin) = (schema.clone(), admin.clone());
        async move {
            let sql = format!("SELECT version FROM {schema}.records");
            let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(&admin).await.expect("a record");
            sqlx::Row::get::<i64, _>(&row, 0)
        }
    };
    let schema = world.schema.clone();
    let work = move |attempt: Attempt| async move {
        let transaction = paid(&pool, &schema, &attempt).await;
        let finish = finish_in(&node, &pool, transaction, &attempt, charged()).await.expect("written");
        let before = versions().await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        let during = versions().await;
        drop(finish);
        tokio::time::sleep(Duration::from_millis(600)).await;
        let after = versions().await;
        attempt.check().expect("still owned");
        let transaction = paid(&pool, &schema, &attempt).await;
        let finish = finish_in(&node, &pool, transaction, &attempt, charged()).await.expect("written");
        finish.commit().await.expect("committed");
        Ended::new(Ending::InDoubt, (before, during, after))
    };
    let answer = engine.execute(short, work).await.expect("an answer");
    let RequestOutcome::Ran(told) = answer.outcome else { panic!("{answer:?}") };
    assert!(matches!(told.ending, Ending::Succeeded(_)), "what was committed counts");
    let (before, during, after) = told.local;
    assert_eq!(before, during);
    assert!(after > during, "renewed again: {before}, {during}, {after}");
    assert_eq!(world.orders().await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_settled_by_somebody_else_changes_nothing() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let (schema, node, pool) = (world.schema.clone(), engine.clone(), database.clone());
    let admin = world.admin.clone();
    let work = move |attempt: Attempt| async move {
        let transaction = paid(&pool, &schema, &attempt).await;
        // Another attempt's record stands there.
        let sql =
            format!("UPDATE {schema}.records SET token = gen_random_uuid(), entry = entry || '\\x00'::bytea");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&admin).await.expect("changed");
        let refused = finish_in(&node, &pool, transaction, &attempt, charged()).await;
        assert!(matches!(&refused, Err(Error::Overtaken(_))), "{refused:?}");
        Ended::from(Ending::InDoubt)
    };
    let told = engine.execute(charge("charge-1"), work).await.expect("an answer");
    assert!(!matches!(told.outcome, RequestOutcome::Replayed(_)), "{told:?}");
    assert_eq!(world.orders().await, 0);
}
