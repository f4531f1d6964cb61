//! A `rusqlite` connection: what the work of [`sqlite::transact`](crate::sqlite::transact) has.
//!
//! What lives here: statements and savepoints on it. What must never: the text of a statement. The patterns that are offered here take theirs
//! from the form for `sqlx`.

use super::dialect::fault_of;
use super::error::{Fault, PatternError};
use super::value::Bind;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Error, Row, Statement};

/// The name that the store allows the work of a local command for a savepoint.
const BEGIN: &str = "SAVEPOINT semel_pattern";
const RELEASE: &str = "RELEASE semel_pattern";
const UNDO: &str = "ROLLBACK TO semel_pattern; RELEASE semel_pattern";

/// A savepoint in an open transaction. Dropped, it takes back what was done since.
pub(super) struct Savepoint<'c> {
    connection: &'c Connection,
    is_open: bool,
}

impl<'c> Savepoint<'c> {
    /// Refuses a connection without a transaction: a mark that is committed by itself would be one without its effect.
    pub(super) fn begin(connection: &'c Connection) -> Result<Self, PatternError> {
        if connection.is_autocommit() {
            return Err(PatternError::NoTransaction);
        }
        connection.execute_batch(BEGIN).map_err(failed)?;
        Ok(Self { connection, is_open: true })
    }

    /// Keeps what was done since, unless it failed.
    pub(super) fn close<T>(mut self, result: Result<T, PatternError>) -> Result<T, PatternError> {
        // Whatever the work makes of it: after some errors SQLite has rolled everything back.
        if self.connection.is_autocommit() {
            self.is_open = false;
            return Err(PatternError::TransactionEnded);
        }
        let value = result?;
        self.connection.execute_batch(RELEASE).map_err(failed)?;
        self.is_open = false;
        Ok(value)
    }
}

impl Drop for Savepoint<'_> {
    fn drop(&mut self) {
        if self.is_open && !self.connection.is_autocommit() {
            // Where this fails, the connection is broken, and nothing of the transaction can be committed.
            drop(self.connection.execute_batch(UNDO));
        }
    }
}

/// Runs statements whose parameters are `$1`, `$2` and so on.
#[derive(Clone, Copy)]
pub(super) struct Statements<'c>(pub(super) &'c Connection);

impl Statements<'_> {
    /// Runs a statement and answers with the number of rows that it changed.
    pub(super) fn run(self, sql: &str, binds: &[Bind]) -> Result<usize, PatternError> {
        let mut statement = self.0.prepare_cached(sql).map_err(failed)?;
        bind(&mut statement, binds).map_err(failed)?;
        statement.raw_execute().map_err(failed)
    }

    /// Runs a statement and answers with the first column of its first row, if it has one.
    pub(super) fn first<T: FromSql>(self, sql: &str, binds: &[Bind]) -> Result<Option<T>, PatternError> {
        self.row(sql, binds, |row| row.get(0))
    }

    /// Runs a statement and answers with what `read` makes of its first row, if it has one.
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
        // To its end: a change that yields rows is made whole.
        while rows.next().map_err(failed)?.is_some() {}
        Ok(Some(value))
    }

    /// Runs a statement and answers with what `read` makes of each of its rows.
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

/// By name: for SQLite, `$2` is a name and not a place.
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
