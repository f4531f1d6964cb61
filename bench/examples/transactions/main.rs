//! The cost of a local command, compared with the same transaction without Semel, on PostgreSQL and SQLite.
//!
//! `cargo xtask bench transactions [SECONDS]`. Both variants write an order and change the stock of an item.
//! They alternate every second, so that other load on the machine affects both equally.

#![expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]

mod postgres;
mod sqlite;

use clap::Parser;
use semel::core::outcome::Outcome;
use semel::{Class, Identity, Intent, Key, Operation, Policy, Scope, payload};
use semel_tx::LocalEnding;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const RUN: Duration = Duration::from_secs(1);
const CLIENTS: [u32; 3] = [1, 16, 64];
const ITEMS: i64 = 1_000;

type Failed = Box<dyn Error + Send + Sync>;

static NEXT: AtomicI64 = AtomicI64::new(1);

/// The cost of a local command, compared with the same transaction without Semel, on PostgreSQL and SQLite.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench transactions")]
struct Options {
    /// How long each of the two variants runs
    #[arg(default_value = "10")]
    seconds: u32,
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let Options { seconds } = Options::parse();
    println!("{:<24} {:>8} {:>14} {:>14} {:>8}", "", "clients", "without", "with", "ratio");
    postgres::measure(seconds).await?;
    sqlite::measure(seconds).await
}

/// The number of the next order.
fn next() -> i64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn intent(id: i64) -> Result<Intent, Failed> {
    let scope = Scope::new(Identity::api_key("bench"), Operation::named("order"));
    let key = Key::from_source(format!("order-{id}").as_str())?;
    Ok(Intent::new(scope, key, Policy::new(Class::Local), payload::Raw::from(id.to_string())))
}

fn outcome(id: i64) -> Outcome {
    Outcome::http(201, [("location", format!("/orders/{id}"))], "")
}

fn created(id: i64) -> LocalEnding {
    LocalEnding::Succeeded(outcome(id))
}

/// Prints how long a command takes without Semel and with it, for each number of clients.
async fn compare<A, B>(
    name: &str,
    seconds: u32,
    without: impl Fn() -> A + Clone + Send + Sync + 'static,
    with: impl Fn() -> B + Clone + Send + Sync + 'static,
) -> Result<(), Failed>
where
    A: Future<Output = Result<(), Failed>> + Send + 'static,
    B: Future<Output = Result<(), Failed>> + Send + 'static,
{
    for clients in CLIENTS {
        let (mut plain, mut local) = (Vec::new(), Vec::new());
        for _ in 0..seconds {
            plain.push(mean_seconds(clients, without.clone()).await?);
            local.push(mean_seconds(clients, with.clone()).await?);
        }
        let (plain, local) = (median(plain), median(local));
        let ratio = local / plain;
        println!("{name:<24} {clients:>8} {plain:>11.0} µs {local:>11.0} µs {ratio:>7.2}×");
    }
    Ok(())
}

/// The mean duration of one command over a run.
async fn mean_seconds<F>(clients: u32, command: impl Fn() -> F + Send + Sync + 'static) -> Result<f64, Failed>
where
    F: Future<Output = Result<(), Failed>> + Send + 'static,
{
    let (command, until) = (Arc::new(command), Instant::now() + RUN);
    let mut running = JoinSet::new();
    for _ in 0..clients {
        let command = Arc::clone(&command);
        running.spawn(async move {
            let (begun, mut count) = (Instant::now(), 0_u32);
            while Instant::now() < until {
                command().await?;
                count += 1;
            }
            Ok::<_, Failed>(begun.elapsed().as_secs_f64() * 1e6 / f64::from(count.max(1)))
        });
    }
    let mut total = 0.0;
    while let Some(took) = running.join_next().await {
        total += took??;
    }
    Ok(total / f64::from(clients))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
