//! On PostgreSQL: a pool of 16 connections for both variants.

use crate::{Failed, ITEMS, compare, created, intent, next};
use semel::Engine;
use semel_sql::postgres::{Options, Store};
use semel_tx::postgres::{Database, transact};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn measure(seconds: u32) -> Result<(), Failed> {
    let url = std::env::var("SEMEL_TEST_POSTGRES_URL")?;
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
    let plain = pool.clone();
    let node = engine.clone();
    let with = move || local(node.clone(), database.clone());
    compare("postgres", seconds, move || bare(plain.clone()), with).await?;
    engine.shutdown(Duration::from_secs(5)).await;
    sqlx::raw_sql("DROP SCHEMA bench_tx CASCADE").execute(&pool).await?;
    Ok(())
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
    order(&mut transaction, next()).await?;
    Ok(transaction.commit().await?)
}

async fn local(engine: Engine, database: Database) -> Result<(), Failed> {
    let id = next();
    transact(&engine, &database, intent(id)?, move |tx, _| {
        Box::pin(async move {
            order(tx, id).await?;
            Ok(created(id))
        })
    })
    .await?;
    Ok(())
}
