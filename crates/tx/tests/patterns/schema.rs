//! The tables that the patterns need.

use crate::world::{Lite, Pg, World, message, url};
use semel_tx::patterns::{Inbox, PatternError, Tables};
use sqlx::{Connection as _, PgConnection, SqliteConnection};

#[tokio::test(flavor = "multi_thread")]
async fn missing_tables_are_named_with_advice() {
    let mut connection = PgConnection::connect(&url()).await.expect("the server answers");
    let mut transaction = connection.begin().await.expect("a transaction");
    let inbox = Inbox::new("billing").tables(Tables::in_schema("no_such_schema"));
    let postgres = inbox.once(&mut *transaction, &message("m", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("SQLite works");
    let mut transaction = connection.begin().await.expect("a transaction");
    let sqlite = inbox.once(&mut *transaction, &message("m", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    for missing in [postgres, sqlite] {
        let Err(error @ PatternError::MissingTables(_)) = missing else { panic!("{missing:?}") };
        assert!(error.to_string().contains("semel schema apply") && !error.is_retryable(), "{error}");
    }
}

/// A store of the previous schema has no such tables; opening it with this build creates them, and its
/// records stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_schema_one_gets_the_tables() {
    let postgres = Pg::new().await;
    let tables =
        ["inbox_marks", "operation_fences", "business_references", "counter_sums", "counter_operations"];
    for table in tables {
        postgres.sql(&format!("DROP TABLE {{o:{table}}}")).await;
    }
    postgres.sql("UPDATE {o:meta} SET value = 1 WHERE name = 'schema'").await;
    let store =
        semel_sql::postgres::Store::open(&postgres.store_url(), semel_sql::postgres::Options::default())
            .await
            .expect("it opens");
    semel_core::store::Store::close(&store).await;
    let sqlite = Lite::new().await;
    for table in tables {
        sqlite.sql(&format!("DROP TABLE {{o:{table}}}")).await;
    }
    sqlite.sql("UPDATE {o:meta} SET value = 1 WHERE name = 'schema'").await;
    drop(
        semel_sql::sqlite::Store::open(sqlite.path(), semel_sql::sqlite::Options::default())
            .expect("it opens"),
    );
    for table in tables {
        assert_eq!(postgres.ask(&format!("SELECT count(*) FROM {{o:{table}}}")).await, 0);
        assert_eq!(sqlite.ask(&format!("SELECT count(*) FROM {{o:{table}}}")).await, 0);
    }
    assert_eq!(postgres.ask("SELECT value FROM {o:meta} WHERE name = 'schema'").await, 4);
    assert_eq!(sqlite.ask("SELECT value FROM {o:meta} WHERE name = 'schema'").await, 2);
}
