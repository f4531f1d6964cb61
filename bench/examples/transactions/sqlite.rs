//! On SQLite: the store's own thread, and a connection of the application. Without Semel there is one
//! connection for all clients, because a file has one writer.

use crate::{Failed, ITEMS, compare, created, intent, next, outcome};
use semel::Engine;
use semel_sql::sqlite::{Options, Store};
use semel_tx::sqlite::own::{Begun, begin};
use semel_tx::sqlite::rusqlite::params;
use semel_tx::sqlite::{Database, transact};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, SqliteConnection, SqlitePool};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const INSERT: &str = "INSERT INTO orders (id, item) VALUES (?1, ?2)";
const TAKE_FROM_STOCK: &str = "UPDATE stock SET left_over = left_over - 1 WHERE item = ?1";

pub(crate) async fn measure(seconds: u32) -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.0.join("shop.db");
    let store = Arc::new(Store::open(&path, Options::default())?);
    let pool = pool(path).await?;
    sqlx::raw_sql(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, item INTEGER NOT NULL); \
         CREATE TABLE stock (item INTEGER PRIMARY KEY, left_over INTEGER NOT NULL); \
         WITH RECURSIVE items (item) AS (SELECT 0 UNION ALL SELECT item + 1 FROM items WHERE item < 999) \
         INSERT INTO stock SELECT item, 1000000 FROM items",
    )
    .execute(&pool)
    .await?;
    let engine = Engine::builder(Arc::clone(&store) as _).build().await?;
    engine.store_id().await?;
    let database = Database::new(store);
    let (plain, node) = (pool.clone(), engine.clone());
    let with = move || local(node.clone(), database.clone());
    compare("sqlite, store's thread", seconds, move || bare(plain.clone()), with).await?;
    let (plain, node) = (pool.clone(), engine.clone());
    let with = move || by_hand(node.clone(), pool.clone());
    compare("sqlite, own connection", seconds, move || bare(plain.clone()), with).await?;
    engine.shutdown(Duration::from_secs(5)).await;
    Ok(())
}

/// A separate folder, removed at the end. It is not in memory: the cost of a commit is the disk.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self, Failed> {
        let path =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../target/bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

async fn pool(path: PathBuf) -> Result<SqlitePool, Failed> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(Duration::from_secs(20));
    let pool = SqlitePoolOptions::new().max_connections(1).acquire_timeout(Duration::from_mins(1));
    Ok(pool.connect_with(options).await?)
}

async fn order(connection: &mut SqliteConnection, id: i64) -> Result<(), sqlx::Error> {
    let item = id % ITEMS;
    sqlx::query(INSERT).bind(id).bind(item).execute(&mut *connection).await?;
    sqlx::query(TAKE_FROM_STOCK).bind(item).execute(connection).await.map(drop)
}

async fn bare(pool: SqlitePool) -> Result<(), Failed> {
    let mut connection = pool.acquire().await?;
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    order(&mut transaction, next()).await?;
    Ok(transaction.commit().await?)
}

async fn local(engine: Engine, database: Database) -> Result<(), Failed> {
    let id = next();
    transact(&engine, &database, intent(id)?, move |tx, _| {
        tx.prepare_cached(INSERT)?.execute(params![id, id % ITEMS])?;
        tx.prepare_cached(TAKE_FROM_STOCK)?.execute(params![id % ITEMS])?;
        Ok(created(id))
    })
    .await?;
    Ok(())
}

async fn by_hand(engine: Engine, pool: SqlitePool) -> Result<(), Failed> {
    let id = next();
    let mut connection = pool.acquire().await?;
    match begin(&engine, &mut connection, intent(id)?).await? {
        Begun::Owned(mut owned) => {
            order(owned.connection(), id).await?;
            let answer = owned.succeed(outcome(id)).await?.commit().await?;
            if answer.replayed { Err("a new key was not run".into()) } else { Ok(()) }
        }
        Begun::Answered(answer) => Err(format!("a new key was answered: {answer:?}").into()),
    }
}
