//! The differences between the databases, one file each: names, clocks, lists of rows, lock waits and error
//! codes.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
pub(super) use sqlite::{NO_COMMIT, NO_WRITES, fault_of};

use super::connection::{PatternRow, WorkFuture};
use super::error::Fault;
use super::savepoint_name::SavepointName;
use super::tables::Tables;
use super::value::{Bind, Column};
use std::time::Duration;

/// The limits on statements before they were changed.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "SQLite waits at the beginning of a transaction only")
)]
pub struct FormerBounds {
    pub(super) lock: String,
    pub(super) statement: String,
}

/// A database that the patterns support. Parameters of statements are `$1`, `$2` and so on.
pub trait Dialect: sqlx::Connection + Sized {
    /// Begins a transaction that writes.
    const BEGIN: &'static str;
    /// The suffix of a `SELECT` that locks its rows, skipping rows that others have locked.
    const LOCKED: &'static str;
    /// Whether [deferred constraints](Self::check_deferred) can be checked before the commit.
    const CHECKS_DEFERRED: bool;
    /// Whether a text can be cast to a type of any name. On SQLite such a cast returns a number.
    const HAS_TYPES: bool;

    /// The name of a table in a statement.
    fn table(tables: &Tables, name: &str) -> String;

    /// The current time in a statement, in milliseconds since 1970.
    fn now(tables: &Tables) -> String;

    /// A list of rows as a statement with the columns `column1`, `column2` and so on.
    fn rowset(binds: &mut Vec<Bind>, columns: Vec<Column>) -> String;

    /// Runs a statement and returns the number of rows that it changed.
    fn run(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>>;

    /// Runs a statement and returns its rows.
    fn rows(
        &mut self,
        sql: String,
        binds: Vec<Bind>,
    ) -> WorkFuture<'_, Result<Vec<PatternRow<Self>>, sqlx::Error>>;

    /// Runs an `INSERT` that waits for others at most `wait`, and returns the number of rows that it changed.
    fn insert_waiting(
        &mut self,
        insert: String,
        binds: Vec<Bind>,
        wait: Duration,
    ) -> WorkFuture<'_, Result<u64, sqlx::Error>>;

    /// Limits the following statements of the transaction, which write this many rows, and returns the former
    /// limits.
    fn bound_waits(
        &mut self,
        wait: Duration,
        rows: usize,
    ) -> WorkFuture<'_, Result<Option<FormerBounds>, sqlx::Error>>;

    /// Restores former limits.
    fn restore_waits(&mut self, former: Option<FormerBounds>) -> WorkFuture<'_, Result<(), sqlx::Error>>;

    /// Runs a statement without `RETURNING` whose commit must be durable, and returns the number of rows that
    /// it changed.
    fn run_durably(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>>;

    /// Fails if something is violated that only the commit would check. Afterwards, constraints are deferred
    /// as before. `open` is the number of open [savepoints](Self::begin_savepoint).
    fn check_deferred(&mut self, open: i64) -> WorkFuture<'_, Result<(), sqlx::Error>>;

    /// How many nested transactions sqlx believes to be open, after everything that it has queued. Compared
    /// with what it was before, never trusted alone.
    fn depth(&mut self) -> WorkFuture<'_, Result<usize, sqlx::Error>>;

    /// Begins a savepoint in the open transaction. `false`: the database has no open transaction.
    ///
    /// It is an ordinary statement, so that it does not change the [depth](Self::depth). If the future is
    /// dropped, [`leave_savepoint`](Self::leave_savepoint) has to be called.
    fn begin_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<bool, sqlx::Error>>;

    /// Whether the transaction of the savepoint is still open. An error of the database: it is, and can only
    /// be rolled back.
    fn has_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<bool, sqlx::Error>>;

    /// Keeps the changes since the savepoint.
    fn release_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<(), sqlx::Error>>;

    /// Undoes the changes since the savepoint, and removes it. An error of the database: it does not exist.
    fn undo_savepoint(&mut self, name: &SavepointName) -> WorkFuture<'_, Result<(), sqlx::Error>>;

    /// Makes the transaction as it was before this error of [`begin_savepoint`](Self::begin_savepoint). `false`: that is
    /// not possible.
    fn restore_after(&mut self, error: &sqlx::Error, name: &SavepointName) -> WorkFuture<'_, bool>;

    /// Called by a destructor: undoes the changes since the savepoint before the next statement, or prevents
    /// the commit. `depth` was that before the savepoint.
    fn leave_savepoint(&mut self, name: &SavepointName, depth: usize);

    /// The same while the statement that begins or ends the savepoint has no answer. It may have been carried out or not
    /// have been sent, so the savepoint may not be there, or be one of that name that an earlier call has left.
    fn leave_unanswered(&mut self, name: &SavepointName, depth: usize);

    /// The transaction is over although its owner believes that it is open: whatever is written from now on
    /// must not be committed. `depth` is what the owner expects.
    fn abandon(&mut self, depth: usize) -> WorkFuture<'_, ()>;

    /// Called before sqlx rolls back, so that it succeeds even if the database has done so by itself.
    fn before_rollback(&mut self) -> WorkFuture<'_, ()>;

    /// Called by a destructor: rolls a [transaction](Self::BEGIN) back before the next statement, even if its
    /// beginning has no answer yet.
    fn leave_transaction(&mut self);

    /// The meaning of an error.
    fn fault(error: &sqlx::Error) -> Fault;

    /// A text column of a row.
    fn text(row: &PatternRow<Self>, at: usize) -> Result<Option<String>, sqlx::Error>;

    /// A bytes column of a row.
    fn bytes(row: &PatternRow<Self>, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error>;

    /// An integer column of a row.
    fn integer(row: &PatternRow<Self>, at: usize) -> Result<Option<i64>, sqlx::Error>;

    /// A boolean column of a row.
    fn boolean(row: &PatternRow<Self>, at: usize) -> Result<Option<bool>, sqlx::Error>;
}
