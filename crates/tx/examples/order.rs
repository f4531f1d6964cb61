//! An order, created exactly once: it is committed together with its record. Run it twice with the same key:
//!
//! `cargo run -p semel-tx --features sqlite --example order -- order-1234 book`

use semel::core::outcome::Outcome;
use semel::{Class, Engine, Identity, Intent, Key, Operation, Policy, RecordedOutcome, Scope, payload};
use semel_sql::sqlite::{Options, Store};
use semel_tx::LocalEnding;
use semel_tx::sqlite::{Database, rusqlite, transact};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Orders `item`, unless that was already done under this key.
pub(crate) async fn order(path: &Path, key: &str, item: String) -> Result<RecordedOutcome, Box<dyn Error>> {
    let store = Arc::new(Store::open(path, Options::default())?);
    let engine = Engine::builder(store.clone()).build().await?;
    let orders = Database::new(store);

    let scope = Scope::new(Identity::api_key("shop"), Operation::named("create-order"));
    let key = Key::from_source(key)?;
    let intent = Intent::new(scope, key, Policy::new(Class::Local), payload::Raw::from(item.clone()));

    let created = transact(&engine, &orders, intent, move |tx, local| {
        let id = local.operation_id.to_string();
        tx.execute("INSERT INTO orders (id, item) VALUES (?1, ?2)", [&id, &item])?;
        Ok(LocalEnding::Succeeded(Outcome::http(201, [("location", format!("/orders/{id}"))], "")))
    })
    .await?;
    engine.shutdown(Duration::from_secs(30)).await;
    Ok(created)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(key), Some(item)) = (arguments.next(), arguments.next()) else {
        return Err("give a key and an item".into());
    };
    let path = Path::new("shop.db");
    drop(Store::open(path, Options::default())?);
    let tables = rusqlite::Connection::open(path)?;
    tables.execute_batch("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT)")?;
    match order(path, &key, item).await {
        Ok(created) if created.replayed => println!("order {} was created before", created.operation_id),
        Ok(created) => println!("order {} is created", created.operation_id),
        // For example: the key belongs to another item.
        Err(error) => return Err(format!("no order: {error}").into()),
    }
    Ok(())
}
