//! A client that sends a new key with each retry:
//!
//! `cargo run -p semel-tx --features sqlite --example reference`

use semel::core::outcome::Outcome;
use semel::{Class, Engine, Identity, Intent, Key, Operation, Policy, Scope, payload};
use semel_tx::patterns::{Binding, BusinessReferences};
use semel_tx::sqlite::own::{Begun, begin};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("semel-reference-{}.db", std::process::id()));
    let store = semel_sql::sqlite::Store::open(&file, semel_sql::sqlite::Options::default())?;
    let engine = Engine::builder(Arc::new(store)).build().await?;
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file)).await?;
    sqlx::query("CREATE TABLE payments (invoice TEXT)").execute(&mut connection).await?;
    let references = BusinessReferences::new("acme", "pay");

    for key in ["first-key", "another-key"] {
        let scope = Scope::new(Identity::api_key("k-17"), Operation::named("pay"));
        let payload = payload::Raw::from("invoice-117".to_owned());
        let intent = Intent::new(scope, Key::from_source(key)?, Policy::new(Class::Local), payload);
        let Begun::Owned(mut owned) = begin(&engine, &mut connection, intent).await? else { continue };
        let operation_id = owned.local().operation_id;
        let recorded = match references.bind(owned.connection(), "invoice-117", operation_id).await? {
            Binding::Bound => {
                sqlx::query("INSERT INTO payments VALUES ('invoice-117')")
                    .execute(owned.connection())
                    .await?;
                println!("{key}: paid by operation {operation_id}");
                owned.succeed(Outcome::http(201, [("content-type", "text/plain")], "paid")).await?
            }
            Binding::Taken { operation_id } => {
                println!("{key}: refused, operation {operation_id} has paid that invoice");
                let body = format!("paid by {operation_id}");
                owned.refuse(Outcome::http(409, [("content-type", "text/plain")], body)).await?
            }
        };
        recorded.commit().await?;
    }
    let payments: i64 =
        sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut connection).await?;
    println!("payments: {payments}");
    connection.close().await?;
    engine.shutdown(Duration::from_secs(5)).await;
    for suffix in ["", "-wal", "-shm"] {
        // The last two are already removed if no connection has the file open.
        drop(std::fs::remove_file(format!("{}{suffix}", file.display())));
    }
    Ok(())
}
