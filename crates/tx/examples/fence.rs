//! A service behind the gateway that gets repeated attempts:
//!
//! `cargo run -p semel-tx --features sqlite --example fence`

use semel::core::id::OperationId;
use semel_core::store::Clock as _;
use semel_tx::patterns::{FenceGuard, Guarded};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("semel-fence-{}.db", std::process::id()));
    // Creates the tables.
    drop(semel_sql::sqlite::Store::open(&file, semel_sql::sqlite::Options::default())?);
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file)).await?;
    sqlx::query("CREATE TABLE charges (amount INTEGER)").execute(&mut connection).await?;

    // The gateway sends Operation-Id, the same for all attempts of one command, and Idempotency-Fence, which
    // increases.
    let operation_id: OperationId = "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35".parse()?;
    let first = semel_sql::SystemClock.now().as_millis();
    let attempts = [
        ("the first attempt, whose answer is lost", first),
        ("the second attempt", first + 5_000),
        ("an attempt that was paused before both", first - 5_000),
    ];
    for (name, fence) in attempts {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let guarded = FenceGuard::default()
            .run(&mut *transaction, operation_id, fence, |tx| {
                Box::pin(async move {
                    sqlx::query("INSERT INTO charges VALUES (500)").execute(tx).await?;
                    Ok(br#"{"charged":500}"#.to_vec())
                })
            })
            .await?;
        transaction.commit().await?;
        match guarded {
            Guarded::Ran(body) => println!("{name}: ran, 201 {}", String::from_utf8_lossy(&body)),
            Guarded::AlreadyDone(body) => {
                println!("{name}: done before, 201 {}", String::from_utf8_lossy(&body));
            }
            Guarded::Refused(why) => println!("{name}: 409 with Idempotency-Outcome: unknown ({why:?})"),
        }
    }
    let charges: i64 = sqlx::query_scalar("SELECT count(*) FROM charges").fetch_one(&mut connection).await?;
    println!("charges: {charges}");
    connection.close().await?;
    Ok(std::fs::remove_file(file)?)
}
