//! What differs between the databases: one file for each.
//!
//! What lives here: names, clocks, lists of rows, waiting for locks, and what errors mean. What must never: a pattern.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
pub(super) use sqlite::fault_of;

use super::connection::{PatternRow, WorkFuture};
use super::error::Fault;
use super::tables::Tables;
use super::value::{Bind, Column};
use std::time::Duration;

/// How long statements could wait and take before that was bounded.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "postgres"),
    expect(dead_code, reason = "SQLite waits at the beginning of a transaction only")
)]
pub struct FormerBounds {
    pub(super) lock: String,
    pub(super) statement: String,
}

/// A database that the patterns know. Parameters of statements are `$1`, `$2` and so on.
pub trait Dialect: sqlx::Connection + Sized {
    /// Begins a transaction that writes.
    const BEGIN: &'static str;
    /// What follows a `SELECT` whose rows are to be locked, past those that others have locked.
    const LOCKED: &'static str;
    /// Whether the database rolls a transaction back by itself on some errors, and goes on without one.
    const ENDS_TRANSACTIONS: bool;
    /// Whether [constraints that are deferred](Self::check_deferred) can be checked before the commit.
    const CHECKS_DEFERRED: bool;
    /// Whether a text can be cast to a type of any name. On SQLite such a cast yields a number.
    const HAS_TYPES: bool;

    /// The name of a table in a statement.
    fn table(tables: &Tables, name: &str) -> String;

    /// The present moment in a statement, in milliseconds since 1970.
    fn now(tables: &Tables) -> String;

    /// A list of rows as a statement whose columns are called `column1`, `column2` and so on.
    fn rowset(binds: &mut Vec<Bind>, columns: Vec<Column>) -> String;

    /// Runs a statement and answers with the number of rows that it changed.
    fn run(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>>;

    /// Runs a statement and answers with its rows.
    fn rows(
        &mut self,
        sql: String,
        binds: Vec<Bind>,
    ) -> WorkFuture<'_, Result<Vec<PatternRow<Self>>, sqlx::Error>>;

    /// Runs an `INSERT` that waits for others no longer than `wait`, and answers with the number of rows that it changed.
    fn insert_waiting(
        &mut self,
        insert: String,
        binds: Vec<Bind>,
        wait: Duration,
    ) -> WorkFuture<'_, Result<u64, sqlx::Error>>;

    /// Bounds the statements of the transaction that follow, which write so many rows, and answers with the bounds that there were.
    fn bound_waits(
        &mut self,
        wait: Duration,
        rows: usize,
    ) -> WorkFuture<'_, Result<Option<FormerBounds>, sqlx::Error>>;

    /// Brings former bounds back.
    fn restore_waits(&mut self, former: Option<FormerBounds>) -> WorkFuture<'_, Result<(), sqlx::Error>>;

    /// Runs a statement without `RETURNING` whose commit has to be durable, and answers with the number of rows that it changed.
    fn run_durably(&mut self, sql: String, binds: Vec<Bind>) -> WorkFuture<'_, Result<u64, sqlx::Error>>;

    /// Fails where a constraint is violated that would be checked by the commit only. Whatever comes of it, constraints are deferred as before.
    fn check_deferred(&mut self) -> WorkFuture<'_, Result<(), sqlx::Error>>;

    /// What an error means.
    fn fault(error: &sqlx::Error) -> Fault;

    /// A text of a row.
    fn text(row: &PatternRow<Self>, at: usize) -> Result<Option<String>, sqlx::Error>;

    /// Bytes of a row.
    fn bytes(row: &PatternRow<Self>, at: usize) -> Result<Option<Vec<u8>>, sqlx::Error>;

    /// A whole number of a row.
    fn integer(row: &PatternRow<Self>, at: usize) -> Result<Option<i64>, sqlx::Error>;

    /// A truth value of a row.
    fn boolean(row: &PatternRow<Self>, at: usize) -> Result<Option<bool>, sqlx::Error>;
}
