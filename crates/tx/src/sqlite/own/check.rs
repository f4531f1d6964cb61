//! Connections and transactions that could not keep the promise.

use super::rows::code;
use crate::error::Error;
use crate::hand::Open;
use semel::{Engine, StoreId};
use semel_core::store::{self, Kind};
use semel_sql::sqlite::transaction as sql;
use sqlx::{Connection as _, Row as _, Sqlite, SqliteConnection, Transaction};

fn unfit(cause: impl Into<String>) -> Error {
    const USING: &str = "using a connection to an SQLite file";
    Error::Store(store::Error::new(Kind::Unfit, USING).because(cause.into()))
}

/// Refuses a connection that a transaction is open on, or that could not keep the promise.
pub(super) async fn check_idle(engine: &Engine, connection: &mut SqliteConnection) -> Result<(), Error> {
    engine.store_id().await.map_err(|error| Error::Engine(error.into()))?;
    check(engine, connection).await?;
    // Only now: a transaction that was dropped is rolled back by the time of the next statement.
    if connection.is_in_transaction() {
        return Err(unfit(
            "a transaction is open already, whose end would decide instead of this one's: join it",
        ));
    }
    Ok(())
}

/// Refuses a transaction that is nested in another, or that could not keep the promise, and has it take the file's write lock.
///
/// The lock is what `BEGIN IMMEDIATE` has from its start. Another transaction gets it here, unless somebody else has written since it
/// began to read.
pub(super) async fn check_open<'c>(
    engine: &Engine,
    transaction: Transaction<'c, Sqlite>,
) -> Result<Open<'c, Sqlite>, Error> {
    let mut open = Open::new(transaction);
    if open.depth() != 1 {
        // The outer one is left as it was.
        drop(open.into_transaction());
        return Err(unfit(
            "the transaction is nested in another, whose end would decide instead of this one's",
        ));
    }
    check(engine, &mut open).await?;
    // SQLite ends a transaction by itself on some errors, which sqlx does not notice. Inside of one, BEGIN is refused.
    if sqlx::query("BEGIN").execute(&mut *open).await.is_ok() {
        return Err(unfit("SQLite has rolled the transaction back after an error: begin again"));
    }
    match sqlx::query(sql::TAKE_LOCK).execute(&mut *open).await {
        Ok(_) => Ok(open),
        Err(sqlx::Error::Database(error)) if code(&*error) == BUSY_SNAPSHOT => Err(Error::StaleSnapshot),
        Err(error) => Err(Error::Database(error)),
    }
}

/// Marks the transaction in which was looked.
pub(super) async fn mark(connection: &mut SqliteConnection) -> Result<(), Error> {
    sqlx::query("SAVEPOINT semel_look").execute(connection).await.map(drop).map_err(Error::Database)
}

/// Whether it is still that transaction. SQLite ends one by itself on some errors (`RAISE(ROLLBACK)`, `INSERT OR ROLLBACK`, a full
/// disk), and sqlx does not notice: what is written then is committed at once, without what the work wrote before.
pub(super) async fn is_marked(connection: &mut SqliteConnection) -> bool {
    sqlx::query("RELEASE semel_look").execute(connection).await.is_ok()
}

/// What the transaction has read is older than what another one has written since.
const BUSY_SNAPSHOT: i32 = 517;

/// The file is that of the engine's store, and a commit waits for the disk. Only reads: the connection may hold the lock that the
/// engine would wait for.
async fn check(engine: &Engine, connection: &mut SqliteConnection) -> Result<(), Error> {
    let setting = sqlx::query(sql::SETTING).bind(StoreId::SETTING).fetch_optional(&mut *connection).await;
    let row = match setting {
        Ok(row) => row,
        // No such table.
        Err(sqlx::Error::Database(error)) if code(&*error) == 1 => None,
        Err(error) => return Err(Error::Database(error)),
    };
    let own = row.and_then(|row| StoreId::from_setting(row.try_get(0).ok()?));
    let engines = engine.store_id().await.map_err(|error| match own {
        Some(_) => Error::Engine(error.into()),
        None => unfit(format!(
            "the store has no id yet, and none can be written while this transaction is open ({error}): call \
             Engine::store_id before it begins"
        )),
    })?;
    if own != Some(engines) {
        return Err(Error::OtherStore { engine: engines, pool: own });
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
