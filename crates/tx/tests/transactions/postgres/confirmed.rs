//! Answers about a commit that the server's standby may not have.

use super::world::{address_in, body, intent, ran, work};
use semel::{Engine, RecordedOutcome, Settings};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request};
use semel_tx::Error;
use semel_tx::postgres::{Database, transact};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::sync::Arc;
use std::time::Duration;

async fn order(engine: &Engine, database: &Database, key: &str) -> Result<RecordedOutcome, Error> {
    let work = work(|tx, local| {
        Box::pin(async move {
            sqlx::query("INSERT INTO orders (id) VALUES ($1)")
                .bind(local.operation_id.to_string())
                .execute(tx)
                .await?;
            Ok(super::world::created(local))
        })
    });
    transact(engine, database, intent(key), work).await
}

/// The server waits for a missing standby; ending the session makes a write visible that the standby does not
/// have.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_order_is_answered_when_the_standby_has_it() {
    Box::pin(an_order_whose_wait_is_ended_by("pg_terminate_backend", "tx-sync-standby")).await;
}

/// The same by a cancellation, after which the commit is acknowledged, with a warning.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_with_a_cancelled_wait_is_not_believed() {
    Box::pin(an_order_whose_wait_is_ended_by("pg_cancel_backend", "tx-cancelled-wait")).await;
}

async fn an_order_whose_wait_is_ended_by(function: &str, folder: &str) {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), folder);
    let server = PostgresServer::start(folder.join("server"));
    let store =
        Store::open(&format!("{}?timeout=1", server.url()), Options::default()).await.expect("it opens");
    server.sql("CREATE TABLE orders (id text)");
    server.sql("GRANT ALL ON orders TO PUBLIC");
    let settings = Settings { store_timeout: Duration::from_secs(3), ..Settings::default() };
    let engine = Engine::builder(Arc::new(store)).settings(settings).build().await.expect("an engine");
    let options: PgConnectOptions = server.url().parse().expect("a URL");
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options.application_name("shop"));
    let database = Database::new(pool.await.expect("the server answers"));
    assert!(ran(&order(&engine, &database, "order-1").await.expect("it runs")));
    server.wait_for_missing_standby();
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'shop'";
    let ordering = order(&engine, &database, "order-2");
    let ending = async {
        while server.sql(&format!("SELECT count(*) {waiting}")).trim() == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.sql(&format!("SELECT {function}(pid) {waiting}"));
    };
    let (in_doubt, ()) = tokio::join!(ordering, ending);
    assert!(matches!(&in_doubt, Err(Error::CommitInDoubt { .. })), "{in_doubt:?}");
    assert_eq!(server.sql("SELECT count(*) FROM orders").trim(), "2", "the server shows it to all");
    let unconfirmed = order(&engine, &database, "order-2").await;
    assert!(matches!(&unconfirmed, Err(Error::Engine(semel::Error::StoreLost(_)))), "{unconfirmed:?}");
    server.wait_for_no_standby();
    let mut tries = 0;
    let answer = loop {
        match order(&engine, &database, "order-2").await {
            Ok(answer) => break answer,
            Err(error) if tries < 100 => {
                assert!(error.is_retryable(), "{error}");
                tries += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert!(answer.replayed && body(&answer) == "created", "{answer:?}");
    assert_eq!(server.sql("SELECT count(*) FROM orders").trim(), "2");
}

/// The store's connections lead to a promoted standby by now, which confirms commits and lacks this one.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_on_the_replaced_primary_is_in_doubt() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "tx-replaced-primary");
    let primary = PostgresServer::start(folder.join("primary"));
    let (address, plan) = (address_in(&primary.url()), |_: &Request<'_>| Fault::Pass);
    let proxy = FaultProxy::start(address, Protocol::Postgres, plan).await.expect("a port");
    let url = primary.url().replace(&address.to_string(), &proxy.address().to_string());
    let store = Store::open(&format!("{url}?timeout=1"), Options::default()).await.expect("it opens");
    primary.sql("CREATE TABLE orders (id text)");
    primary.sql("GRANT ALL ON orders TO PUBLIC");
    let settings = Settings { store_timeout: Duration::from_secs(3), ..Settings::default() };
    let engine = Engine::builder(Arc::new(store)).settings(settings).build().await.expect("an engine");
    let options: PgConnectOptions = primary.url().parse().expect("a URL");
    let pool = PgPoolOptions::new().max_connections(2).connect_with(options);
    let database = Database::new(pool.await.expect("the server answers"));
    let mut standby = primary.standby(folder.join("standby"));
    primary.wait_for_standby();
    assert!(ran(&order(&engine, &database, "order-1").await.expect("it runs")));
    standby.catch_up(&primary);
    standby.promote();
    proxy.swap(address_in(&standby.url()), Existing::Cut);
    let primary = Arc::new(primary);
    let committing = Arc::clone(&primary);
    let work = work(move |tx, local| {
        let primary = Arc::clone(&committing);
        Box::pin(async move {
            sqlx::query("INSERT INTO orders (id) VALUES ($1)")
                .bind(local.operation_id.to_string())
                .execute(tx)
                .await?;
            // The commit is acknowledged although the standby does not have it, as after a cancelled wait.
            primary.wait_for_no_standby();
            Ok(super::world::created(local))
        })
    });
    let in_doubt = transact(&engine, &database, intent("order-2"), work).await;
    assert!(matches!(&in_doubt, Err(Error::CommitInDoubt { .. })), "{in_doubt:?}");
    assert_eq!((count(&primary), count(&standby)), (2, 1), "only the replaced primary has it");
}

fn count(server: &PostgresServer) -> u32 {
    server.sql("SELECT count(*) FROM orders").trim().parse().expect("a number")
}
