//! The `rusqlite` connection of the work of [`sqlite::transact`](crate::sqlite::transact).
//!
//! Statements and savepoints on it. The texts of the statements are those of the `sqlx` form.

use super::dialect::{NO_COMMIT, NO_WRITES, fault_of};
use super::error::{Fault, PatternError};
use super::savepoint_name::SavepointName;
use super::value::Bind;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Error, Row, Statement};

/// A savepoint in an open transaction. Dropping it undoes the changes since.
pub(super) struct Savepoint<'c> {
    connection: &'c Connection,
    name: SavepointName,
    is_open: bool,
}

impl<'c> Savepoint<'c> {
    /// Refuses a connection without a transaction: a mark could be committed without its effect.
    pub(super) fn begin(connection: &'c Connection) -> Result<Self, PatternError> {
        if connection.is_autocommit() {
            return Err(PatternError::NoTransaction);
        }
        let mut savepoint = Self { connection, name: SavepointName::on(connection), is_open: false };
        match connection.execute_batch(&format!("SAVEPOINT {}", savepoint.name)) {
            Ok(()) => {
                savepoint.is_open = true;
                Ok(savepoint)
            }
            // After some errors SQLite has rolled everything back.
            Err(_) if connection.is_autocommit() => Err(savepoint.ended()),
            Err(error) => {
                savepoint.name.set_free();
                Err(failed(error))
            }
        }
    }

    /// Fails if the work has ended the transaction. Called after the work and before anything else is
    /// written.
    pub(super) fn verify(&self) -> Result<(), PatternError> {
        if self.connection.is_autocommit() { Err(PatternError::TransactionEnded) } else { Ok(()) }
    }

    /// Keeps the changes since, unless they failed.
    pub(super) fn close<T>(mut self, result: Result<T, PatternError>) -> Result<T, PatternError> {
        // Even if the work ignores it: after some errors SQLite has rolled everything back.
        if self.connection.is_autocommit() {
            return Err(self.ended());
        }
        let end = if result.is_ok() { format!("RELEASE {}", self.name) } else { self.undo() };
        // No other savepoint has the name: this transaction has replaced the caller's.
        if self.connection.execute_batch(&end).is_err() {
            return Err(self.ended());
        }
        self.is_open = false;
        self.name.set_free();
        result
    }

    fn undo(&self) -> String {
        format!("ROLLBACK TO {0}; RELEASE {0}", self.name)
    }

    /// Opens another transaction in place of the one that is over, which cannot be committed. Denied in the
    /// work of a local command, which is not committed either.
    fn ended(&mut self) -> PatternError {
        self.is_open = false;
        self.name.set_free();
        let connection = self.connection;
        if !connection.is_autocommit() {
            drop(connection.execute_batch("ROLLBACK"));
        }
        let has_keys = connection.query_row("PRAGMA foreign_keys", [], |row| row.get::<_, bool>(0));
        if has_keys.is_ok_and(|has_keys| !has_keys)
            || connection.execute_batch(&format!("BEGIN; {NO_COMMIT}")).is_err()
        {
            drop(connection.execute_batch(NO_WRITES));
        }
        PatternError::TransactionEnded
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if self.is_open && !self.connection.is_autocommit() {
            // If this fails, the connection is broken, and nothing of the transaction can be committed.
            drop(self.connection.execute_batch(&self.undo()));
        }
    }
}

/// Runs statements whose parameters are `$1`, `$2` and so on.
#[derive(Clone, Copy)]
pub(super) struct Statements<'c>(pub(super) &'c Connection);

impl Statements<'_> {
    /// Runs a statement and returns the number of rows that it changed.
    pub(super) fn run(self, sql: &str, binds: &[Bind]) -> Result<usize, PatternError> {
        let mut statement = self.0.prepare_cached(sql).map_err(failed)?;
        bind(&mut statement, binds).map_err(failed)?;
        statement.raw_execute().map_err(failed)
    }

    /// Runs a statement and returns the first column of its first row, if it has one.
    pub(super) fn first<T: FromSql>(self, sql: &str, binds: &[Bind]) -> Result<Option<T>, PatternError> {
        self.row(sql, binds, |row| row.get(0))
    }

    /// Runs a statement and applies `read` to its first row, if it has one.
    pub(super) fn row<T>(
        self,
        sql: &str,
        binds: &[Bind],
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, PatternError> {
        let mut statement = self.0.prepare_cached(sql).map_err(failed)?;
        bind(&mut statement, binds).map_err(failed)?;
        let mut rows = statement.raw_query();
        let Some(row) = rows.next().map_err(failed)? else { return Ok(None) };
        let value = read(row).map_err(failed)?;
        // Read to the end, so that a change that returns rows is made completely.
        while rows.next().map_err(failed)?.is_some() {}
        Ok(Some(value))
    }

    /// Runs a statement and applies `read` to each of its rows.
    pub(super) fn rows<T>(
        self,
        sql: &str,
        binds: &[Bind],
        read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, PatternError> {
        let mut statement = self.0.prepare_cached(sql).map_err(failed)?;
        bind(&mut statement, binds).map_err(failed)?;
        statement.raw_query().mapped(read).collect::<rusqlite::Result<_>>().map_err(failed)
    }
}

/// By name: for SQLite, `$2` is a name and not a position.
fn bind(statement: &mut Statement<'_>, binds: &[Bind]) -> rusqlite::Result<()> {
    for (number, bind) in (1..).zip(binds) {
        let Some(index) = statement.parameter_index(&format!("${number}"))? else { continue };
        match bind {
            Bind::Boolean(value) => statement.raw_bind_parameter(index, value)?,
            Bind::Integer(value) => statement.raw_bind_parameter(index, value)?,
            Bind::Real(value) => statement.raw_bind_parameter(index, value)?,
            Bind::Text(value) => statement.raw_bind_parameter(index, value)?,
            Bind::Bytes(value) => statement.raw_bind_parameter(index, value)?,
            // Lists are rows here.
            #[cfg(feature = "postgres")]
            Bind::Texts(_) | Bind::Blobs(_) => {}
        }
    }
    Ok(())
}

fn failed(error: Error) -> PatternError {
    let fault = match &error {
        Error::SqliteFailure(code, message) => {
            fault_of(code.extended_code, message.as_deref().unwrap_or_default())
        }
        Error::SqlInputError { error, msg, .. } => fault_of(error.extended_code, msg),
        _ => Fault::Refused,
    };
    fault.of_statement(error)
}
