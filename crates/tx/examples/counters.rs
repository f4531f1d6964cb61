//! Numbers that count nothing twice: `cargo run -p semel-tx --features sqlite --example counters`

use semel::core::time::Time;
use semel_tx::patterns::{BucketCounter, Counter, EventCounter};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("semel-counters-{}.db", std::process::id()));
    // Creates the tables.
    drop(semel_sql::sqlite::Store::open(&file, semel_sql::sqlite::Options::default())?);
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file)).await?;
    let balance = Counter::new("balance:acct-7");
    let downloads = EventCounter::new("downloads");
    let revenue = BucketCounter::new("revenue", Duration::from_hours(24))?;
    let (monday, tuesday) = (Time::from_millis(345_600_000), Time::from_millis(432_000_000));

    // The second and the third event are retries of the first one.
    for (event, amount, paid_at) in
        [("evt-1", 500, monday), ("evt-1", 500, monday), ("evt-1", 500, tuesday), ("evt-2", -20, tuesday)]
    {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let counted = balance.add(&mut *transaction, event, amount).await?;
        downloads.add(&mut *transaction, event, 1).await?;
        revenue.add(&mut *transaction, event, amount, paid_at).await?;
        transaction.commit().await?;
        println!("{event}: balance {} (counted now: {})", counted.value, counted.is_new);
    }
    println!("downloads: {}", downloads.value(&mut connection).await?);
    println!("folded: {}", downloads.compact(&mut connection, 1_000).await?);
    println!("downloads: {}", downloads.value(&mut connection).await?);
    for (day, sum) in revenue.buckets(&mut connection, monday, Time::from_millis(u64::MAX >> 1)).await? {
        println!("revenue of the day that starts at {} ms: {sum}", day.as_millis());
    }
    connection.close().await?;
    Ok(std::fs::remove_file(file)?)
}
