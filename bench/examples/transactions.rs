//! What a local command costs beside the same transaction without Semel, on PostgreSQL.
//!
//! `cargo xtask bench transactions [SECONDS]`. Both write an order and change the stock of an item. They take turns, a second each, so
//! that whatever else the machine does concerns both.

#![expect(clippy::disallowed_methods, reason = "a benchmark may look at the clock")]

use semel::core::outcome::Outcome;
use semel::{Class, Engine, Identity, Intent, Key, Operation, Policy, Scope, payload};
use semel_sql::postgres::{Options, Store};
use semel_tx::LocalEnding;
use semel_tx::postgres::{Database, transact};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const TURN: Duration = Duration::from_secs(1);
const ITEMS: i64 = 1_000;

type Failed = Box<dyn Error + Send + Sync>;

static NEXT: AtomicI64 = AtomicI64::new(1);

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")?;
    let seconds = std::env::args().nth(1).map_or(Ok(10), |text| text.parse::<u32>())?;
    let pool = PgPoolOptions::new().max_connections(16).min_connections(16).connect(&url).await?;
    sqlx::raw_sql(
        "DROP SCHEMA IF EXISTS bench_tx CASCADE; CREATE SCHEMA bench_tx; \
         CREATE TABLE bench_tx.orders (id bigint PRIMARY KEY, item bigint NOT NULL); \
         CREATE TABLE bench_tx.stock (item bigint PRIMARY KEY, left_over bigint NOT NULL); \
         INSERT INTO bench_tx.stock SELECT item, 1000000 FROM generate_series(0, 999) AS item",
    )
    .execute(&pool)
    .await?;
    let joint = if url.contains('?') { '&' } else { '?' };
    let store = Store::open(&format!("{url}{joint}schema=bench_tx"), Options::default()).await?;
    let engine = Engine::builder(Arc::new(store)).build().await?;
    let database = Database::new(pool.clone()).schema("bench_tx");
    println!("{:>8} {:>14} {:>14} {:>8}", "clients", "without", "with", "ratio");
    for clients in [1, 4, 16] {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 0..seconds {
            let plain = pool.clone();
            without.push(turn(clients, move || bare(plain.clone())).await?);
            let (engine, database) = (engine.clone(), database.clone());
            with.push(turn(clients, move || local(engine.clone(), database.clone())).await?);
        }
        let (without, with) = (median(without), median(with));
        let ratio = with / without;
        println!("{clients:>8} {without:>11.0} µs {with:>11.0} µs {ratio:>7.2}×");
    }
    engine.shutdown(Duration::from_secs(5)).await;
    sqlx::raw_sql("DROP SCHEMA bench_tx CASCADE").execute(&pool).await?;
    Ok(())
}

/// How long one command took, in the mean of all that were run in one turn.
async fn turn<F>(clients: u32, command: impl Fn() -> F + Send + Sync + 'static) -> Result<f64, Failed>
where
    F: Future<Output = Result<(), Failed>> + Send + 'static,
{
    let (command, until) = (Arc::new(command), Instant::now() + TURN);
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

async fn order(connection: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
    let item = id % ITEMS;
    let insert = sqlx::query("INSERT INTO bench_tx.orders (id, item) VALUES ($1, $2)").bind(id).bind(item);
    insert.execute(&mut *connection).await?;
    let take = sqlx::query("UPDATE bench_tx.stock SET left_over = left_over - 1 WHERE item = $1").bind(item);
    take.execute(connection).await.map(drop)
}

async fn bare(pool: PgPool) -> Result<(), Failed> {
    let mut transaction = pool.begin().await?;
    order(&mut transaction, NEXT.fetch_add(1, Ordering::Relaxed)).await?;
    Ok(transaction.commit().await?)
}

async fn local(engine: Engine, database: Database) -> Result<(), Failed> {
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let scope = Scope::new(Identity::api_key("bench"), Operation::named("order"));
    let key = Key::from_source(format!("order-{id}").as_str())?;
    let intent = Intent::new(scope, key, Policy::new(Class::Local), payload::Raw::from(id.to_string()));
    transact(&engine, &database, intent, move |tx, _| {
        Box::pin(async move {
            order(tx, id).await?;
            Ok(LocalEnding::Succeeded(Outcome::http(201, [("location", format!("/orders/{id}"))], "")))
        })
    })
    .await?;
    Ok(())
}
