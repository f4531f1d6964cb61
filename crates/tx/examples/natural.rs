//! Rows by natural key, version and state: `cargo run -p semel-tx --features sqlite --example natural`

use semel_tx::patterns::{InsertOrGet, NaturalTable, Transition, Value, Version};
use sqlx::{Connection as _, SqliteConnection};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // No table of Semel is needed.
    let mut connection = SqliteConnection::connect("sqlite::memory:").await?;
    let table = "CREATE TABLE orders (customer TEXT, number INTEGER, item TEXT, state TEXT, version INTEGER, changed_by TEXT, \
                 UNIQUE (customer, number))";
    sqlx::query(table).execute(&mut connection).await?;
    let orders = NaturalTable::new("orders", &["customer", "number"]);
    let key: [(&str, Value); 2] = [("customer", "c-17".into()), ("number", 42.into())];
    let mut order = key.to_vec();
    order.extend([("item", "book".into()), ("state", "paid".into()), ("version", 1.into())]);
    for _ in 0..2 {
        match orders.insert_or_get(&mut connection, &order).await? {
            InsertOrGet::Inserted(_) => println!("insert: a new order"),
            InsertOrGet::Existing(_) => println!("insert: the order is there"),
        }
    }
    for operation in ["op-1", "op-1", "op-2"] {
        let version = Version::of("version", 1).by("changed_by", operation);
        let changed =
            orders.compare_and_set(&mut connection, &key, &version, &[("item", "lamp".into())]).await?;
        println!("change by {operation}: {changed:?}");
    }
    for (from, to) in [("paid", "shipped"), ("paid", "shipped"), ("paid", "cancelled")] {
        let step = Transition::new("state", &[from], to);
        println!("{to}: {:?}", orders.transition(&mut connection, &key, &step, &[]).await?);
    }
    Ok(connection.close().await?)
}
