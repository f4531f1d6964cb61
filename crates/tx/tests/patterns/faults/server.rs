//! What needs a PostgreSQL server with other settings, or other roles.

use crate::world::{Pg, World as _, message};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_tx::patterns::{Counter, Inbox, InboxResult, PatternError};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgPool};

struct OwnServer {
    server: PostgresServer,
    pool: PgPool,
    _folder: ScratchDir,
}

impl OwnServer {
    /// `prepare` runs after the server has started.
    async fn start(name: &str, prepare: impl FnOnce(&mut PostgresServer)) -> Self {
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name);
        let mut server = PostgresServer::start(folder.join("server"));
        prepare(&mut server);
        Store::open(&server.url(), Options::default()).await.expect("the store opens").close().await;
        server.sql("CREATE TABLE effects (name text)");
        server.sql("GRANT ALL ON effects TO PUBLIC");
        let pool = PgPoolOptions::new().max_connections(2).connect(&server.url()).await;
        Self { server, pool: pool.expect("the server answers"), _folder: folder }
    }

    fn number(&self, sql: &str) -> u32 {
        self.server.sql(sql).trim().parse().expect("a number")
    }
}

/// Each text of a statement is one of the few that `pg_stat_statements` keeps.
#[tokio::test(flavor = "multi_thread")]
async fn savepoints_are_few_statements_for_the_server() {
    let own = OwnServer::start("few-statements", |server| {
        server.sql("ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'");
        server.restart();
        server.sql("CREATE EXTENSION pg_stat_statements");
    });
    let own = own.await;
    let inbox = Inbox::new("billing");
    for number in 0..20 {
        let mut transaction = own.pool.begin().await.expect("a transaction");
        let done = inbox
            .once(&mut *transaction, &message(&format!("m-{number}"), "5"), |tx, _| {
                Box::pin(async move { Ok(Counter::new("sum").add(tx, "op-1", 1).await.map(drop)?) })
            })
            .await;
        assert!(matches!(done, Ok(InboxResult::Processed(()))), "{done:?}");
        transaction.commit().await.expect("committed");
    }
    // Five statements on each of two levels.
    let texts =
        own.number("SELECT count(*) FROM pg_stat_statements WHERE query LIKE '%semel\\_pattern\\__%'");
    assert!((1..=10).contains(&texts), "{texts} statements for savepoints");
}

/// A role that the application has set may not end the session of the role that has logged in.
#[tokio::test(flavor = "multi_thread")]
async fn after_set_role_nothing_of_an_ended_transaction_is_committed_either() {
    let own = OwnServer::start("set-role", |_| {}).await;
    own.server.sql("CREATE ROLE guest; GRANT guest TO semel; GRANT USAGE ON SCHEMA semel TO guest");
    own.server.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA semel TO guest");
    let mut connection = own.pool.acquire().await.expect("a connection");
    Pg::run(&mut connection, "SET ROLE guest".to_owned()).await.expect("set");
    let mut transaction = connection.begin().await.expect("a transaction");
    let ended = Inbox::new("billing")
        .once(&mut *transaction, &message("m", "5"), |tx, _| {
            Box::pin(async move {
                Pg::run(tx, "INSERT INTO effects VALUES ('m')".to_owned()).await?;
                Pg::run(tx, "ROLLBACK".to_owned()).await.map(drop)
            })
        })
        .await;
    assert!(matches!(ended, Err(PatternError::TransactionEnded)), "{ended:?}");
    drop(Pg::run(&mut transaction, "INSERT INTO effects VALUES ('after')".to_owned()).await);
    assert!(transaction.commit().await.is_err(), "the commit reports a success");
    assert_eq!(own.number("SELECT count(*) FROM effects"), 0);
}

/// The cursor of its savepoint is refused, so it is unknown to the caller what is left of the transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_begin_its_savepoint_ends_the_transaction() {
    let own = OwnServer::start("unbegun", |_| {}).await;
    own.server.sql("REVOKE EXECUTE ON FUNCTION pg_catalog.concat(VARIADIC \"any\") FROM PUBLIC");
    let mut transaction = own.pool.begin().await.expect("a transaction");
    Pg::run(&mut transaction, "INSERT INTO effects VALUES ('before')".to_owned()).await.expect("written");
    let counted = Counter::new("sum").add(&mut *transaction, "op-1", 1).await;
    assert!(matches!(counted, Err(PatternError::TransactionEnded)), "{counted:?}");
    drop(Pg::run(&mut transaction, "INSERT INTO effects VALUES ('after')".to_owned()).await);
    assert!(transaction.commit().await.is_err(), "the commit reports a success");
    assert_eq!(own.number("SELECT count(*) FROM effects"), 0);
}
