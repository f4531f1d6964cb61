//! Answers about a commit that the server's standby may not have.

use crate::world::{body, intent, ran, work};
use semel::{Answer, Engine, RequestOutcome, Settings};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_tx::Error;
use semel_tx::postgres::{Database, transact};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::sync::Arc;
use std::time::Duration;

async fn order(engine: &Engine, database: &Database, key: &str) -> Result<Answer, Error> {
    let work = work(|tx, local| {
        Box::pin(async move {
            sqlx::query("INSERT INTO orders (id) VALUES ($1)")
                .bind(local.operation_id.to_string())
                .execute(tx)
                .await?;
            Ok(crate::world::created(local))
        })
    });
    transact(engine, database, intent(key), work).await
}

/// The server waits for a missing standby; cancelling the wait makes a write visible that the standby does
/// not have.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_order_is_answered_when_the_standby_has_it() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "tx-sync-standby");
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
    let waits_for = |names: &str| {
        server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        server.sql("SELECT pg_reload_conf()");
    };
    waits_for("nobody");
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'shop'";
    let ordering = order(&engine, &database, "order-2");
    let ending = async {
        while server.sql(&format!("SELECT count(*) {waiting}")).trim() == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        server.sql(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
    };
    let (in_doubt, ()) = tokio::join!(ordering, ending);
    assert!(matches!(&in_doubt, Err(Error::CommitInDoubt { .. })), "{in_doubt:?}");
    assert_eq!(server.sql("SELECT count(*) FROM orders").trim(), "2", "the server shows it to all");
    let unconfirmed = order(&engine, &database, "order-2").await;
    assert!(matches!(&unconfirmed, Err(Error::Engine(semel::Error::LostSight(_)))), "{unconfirmed:?}");
    waits_for("");
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
    assert!(
        matches!(answer.outcome, RequestOutcome::Replayed(_)) && body(&answer) == "created",
        "{answer:?}"
    );
    assert_eq!(server.sql("SELECT count(*) FROM orders").trim(), "2");
}
