//! Refuses connections and transactions that cannot keep the guarantee.

use super::rows::code;
use crate::caller_tx::Open;
use crate::error::Error;
use semel::{Engine, StoreId};
use semel_core::store::{self, Kind};
use semel_sql::sqlite::transaction as sql;
use sqlx::{Connection as _, Row as _, Sqlite, SqliteConnection, Transaction};

fn unfit(cause: impl Into<String>) -> Error {
    const USING: &str = "using a connection to an SQLite file";
    Error::Store(store::Error::new(Kind::Unfit, USING).because(cause.into()))
}

/// Refuses a connection that has an open transaction, or cannot keep the guarantee.
pub(super) async fn check_idle(engine: &Engine, connection: &mut SqliteConnection) -> Result<(), Error> {
    engine.store_id().await.map_err(|error| Error::Engine(error.into()))?;
    check(engine, connection).await?;
    // Only now: a dropped transaction is rolled back before the next statement.
    if connection.is_in_transaction() {
        return Err(unfit(
            "a transaction is open already, whose end would decide instead of this one's: join it",
        ));
    }
    Ok(())
}

/// Refuses a transaction that is nested in another, or cannot keep the guarantee, and makes it take the
/// file's write lock.
///
/// `BEGIN IMMEDIATE` has the lock from its start. Another transaction gets it here, unless another connection
/// has written since its first read.
pub(super) async fn check_open<'c>(
    engine: &Engine,
    transaction: Transaction<'c, Sqlite>,
) -> Result<Open<'c, Sqlite>, Error> {
    let mut open = Open::new(transaction);
    let cause = match open.depth() {
        0 => Some("sqlx has rolled the transaction back, because the `begin` of a nested one was dropped"),
        1 => None,
        _ => Some("the transaction is nested in another, whose end would decide instead of this one's"),
    };
    if let Some(cause) = cause {
        // The outer one is left unchanged.
        drop(open.into_transaction());
        return Err(unfit(cause));
    }
    check(engine, &mut open).await?;
    // SQLite ends a transaction by itself on some errors, which sqlx does not notice. Inside a transaction,
    // BEGIN is refused.
    if sqlx::query("BEGIN").execute(&mut *open).await.is_ok() {
        return Err(unfit("SQLite has rolled the transaction back after an error: begin again"));
    }
    match sqlx::query(sql::TAKE_LOCK).execute(&mut *open).await {
        Ok(_) => Ok(open),
        Err(sqlx::Error::Database(error)) if code(&*error) == BUSY_SNAPSHOT => Err(Error::StaleSnapshot),
        Err(error) => Err(Error::Database(error)),
    }
}

/// Marks the transaction of the lookup.
pub(super) async fn mark(connection: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query("SAVEPOINT semel_look").execute(connection).await.map(drop).map_err(Error::Database)
}

/// Whether it is still that transaction. SQLite ends one by itself on some errors (`RAISE(ROLLBACK)`, `INSERT
/// OR ROLLBACK`, a full disk), and sqlx does not notice: later writes are committed at once, without the
/// earlier writes of the work.
pub(super) async fn is_marked(connection: &mut SqliteConnection) -> bool {
    sqlx::query("RELEASE semel_look").execute(connection).await.is_ok()
}

/// Another transaction has written since this one's first read.
const BUSY_SNAPSHOT: i32 = 517;

/// Checks that the file is that of the engine's store, and that a commit waits for the disk. Only reads: the
/// connection may hold the lock that the engine would wait for.
async fn check(engine: &Engine, connection: &mut SqliteConnection) -> Result<(), Error> {
    let setting = sqlx::query(sql::SETTING).bind(StoreId::SETTING).fetch_optional(&mut *connection).await;
    let row = match setting {
        Ok(row) => row,
        // No such table.
        Err(sqlx::Error::Database(error)) if code(&*error) == 1 => None,
        Err(error) => return Err(Error::Database(error)),
    };
    let store_id = row.and_then(|row| StoreId::from_setting(row.try_get(0).ok()?));
    let engines = engine.store_id().await.map_err(|error| match store_id {
        Some(_) => Error::Engine(error.into()),
        None => unfit(format!(
            "the store has no id yet, and none can be written while this transaction is open ({error}): call \
             Engine::store_id before it begins"
        )),
    })?;
    if store_id != Some(engines) {
        return Err(Error::OtherStore { engine: engines, pool: store_id });
    }
    let synchronous = sqlx::query("PRAGMA synchronous").fetch_one(&mut *connection).await;
    let synchronous: i64 = synchronous.and_then(|row| row.try_get(0)).map_err(Error::Database)?;
    if synchronous < sql::SYNCHRONOUS_MIN {
        return Err(unfit(format!(
            "`PRAGMA synchronous` is {synchronous}, so that a commit can be lost; set it to FULL"
        )));
    }
    Ok(())
}
