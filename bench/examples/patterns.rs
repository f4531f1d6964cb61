//! The cost of an inbox, one message at a time and in batches of 500, on PostgreSQL and SQLite.
//!
//! `cargo xtask bench patterns [SECONDS]`. Each message inserts a payment. Both variants alternate, so that
//! other load on the machine affects both equally.

#![expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]

use clap::Parser;
use semel_tx::patterns::{Inbox, Message, MessageId, Tables};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use std::error::Error;
use std::time::{Duration, Instant};

const BATCH: usize = 500;
const SCHEMA: &str = "bench_patterns";

type Failed = Box<dyn Error + Send + Sync>;

/// The cost of an inbox, one message at a time and in batches of 500, on PostgreSQL and SQLite.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench patterns")]
struct Options {
    /// How long each of the two variants runs
    #[arg(default_value = "10")]
    seconds: u32,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let Options { seconds } = Options::parse();
    println!("{:>10} {:>16} {:>16} {:>8}", "store", "one by one", "batches of 500", "ratio");
    let (single, batched) = postgres(seconds).await?;
    report("postgres", single, batched);
    let (single, batched) = sqlite(seconds).await?;
    report("sqlite", single, batched);
    Ok(())
}

fn report(store: &str, single: f64, batched: f64) {
    println!("{store:>10} {single:>11.0} µs/m {batched:>11.0} µs/m {:>7.1}×", single / batched);
}

/// New messages.
fn messages(next: &mut u64, count: usize) -> Result<Vec<Message>, Failed> {
    let mut made = Vec::with_capacity(count);
    for _ in 0..count {
        *next += 1;
        let body = format!(r#"{{"amount":{next}}}"#).into_bytes();
        made.push(Message::json("payments", MessageId::new(format!("evt-{next}"))?, body)?);
    }
    Ok(made)
}

/// The mean time per message of each variant: medians over runs of half a second.
macro_rules! measured {
    ($seconds:expr, $connection:ident, $inbox:ident, $begin:expr, $insert:expr) => {{
        let (mut single, mut batched, mut next) = (Vec::new(), Vec::new(), 0);
        for _ in 0..$seconds {
            let (begun, mut count) = (Instant::now(), 0_u32);
            while begun.elapsed() < RUN {
                for message in &messages(&mut next, 20)? {
                    let mut transaction = $connection.begin_with($begin).await?;
                    $inbox
                        .once(&mut *transaction, message, |tx, message| {
                            Box::pin(async move {
                                let insert = sqlx::query($insert).bind(message.id().as_str());
                                insert.execute(tx).await?;
                                Ok(())
                            })
                        })
                        .await?;
                    transaction.commit().await?;
                    count += 1;
                }
            }
            single.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
            let (begun, mut count) = (Instant::now(), 0_u32);
            while begun.elapsed() < RUN {
                let batch = messages(&mut next, BATCH)?;
                let results = $inbox
                    .batch(&mut $connection, &batch, |tx, message| {
                        Box::pin(async move {
                            let insert = sqlx::query($insert).bind(message.id().as_str());
                            insert.execute(tx).await?;
                            Ok(())
                        })
                    })
                    .await?;
                count += u32::try_from(results.len())?;
            }
            batched.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count));
        }
        (median(single), median(batched))
    }};
}

const RUN: Duration = Duration::from_millis(500);

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn postgres(seconds: u32) -> Result<(f64, f64), Failed> {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")?;
    let mut connection = PgConnection::connect(&url).await?;
    sqlx::raw_sql("DROP SCHEMA IF EXISTS bench_patterns CASCADE").execute(&mut connection).await?;
    let joint = if url.contains('?') { '&' } else { '?' };
    let store = format!("{url}{joint}schema={SCHEMA}");
    drop(semel_sql::postgres::Store::open(&store, semel_sql::postgres::Options::default()).await?);
    sqlx::raw_sql("CREATE TABLE bench_patterns.payments (id text)").execute(&mut connection).await?;
    let inbox = Inbox::new("bench").tables(Tables::in_schema(SCHEMA));
    let insert = "INSERT INTO bench_patterns.payments VALUES ($1)";
    let times = measured!(seconds, connection, inbox, "BEGIN", insert);
    sqlx::raw_sql("DROP SCHEMA bench_patterns CASCADE").execute(&mut connection).await?;
    Ok(times)
}

async fn sqlite(seconds: u32) -> Result<(f64, f64), Failed> {
    let file = std::env::temp_dir().join(format!("semel-bench-patterns-{}.db", std::process::id()));
    drop(semel_sql::sqlite::Store::open(&file, semel_sql::sqlite::Options::default())?);
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file)).await?;
    sqlx::raw_sql("CREATE TABLE payments (id text)").execute(&mut connection).await?;
    let inbox = Inbox::new("bench");
    let insert = "INSERT INTO payments VALUES ($1)";
    let times = measured!(seconds, connection, inbox, "BEGIN IMMEDIATE", insert);
    connection.close().await?;
    for suffix in ["", "-wal", "-shm"] {
        // Only the first argument is certain to exist.
        drop(std::fs::remove_file(format!("{}{suffix}", file.display())));
    }
    Ok(times)
}
