//! The exact counter on a `rusqlite` connection.

use super::exact::BUCKET;
use super::operations::{EnterStatements, Operation, TRIES_MAX};
use super::{Counted, Counter};
use crate::patterns::blocking::{Savepoint, Statements};
use crate::patterns::error::{PatternError, unsettled};
use rusqlite::Connection;
use sqlx::SqliteConnection;

impl Counter {
    /// [`add`](Self::add) on a `rusqlite` connection with an open transaction: in the work of [`sqlite::transact`](crate::sqlite::transact), or in
    /// a transaction of the application's own. Begin that with `BEGIN IMMEDIATE`.
    pub fn add_blocking(
        &self,
        connection: &Connection,
        operation_id: &str,
        amount: i64,
    ) -> Result<Counted, PatternError> {
        let savepoint = Savepoint::begin(connection)?;
        let counted = self.add_to(Statements(connection), operation_id, amount);
        savepoint.close(counted)
    }

    fn add_to(&self, on: Statements<'_>, id: &str, amount: i64) -> Result<Counted, PatternError> {
        let operation = Operation { id, amount, bucket: BUCKET, is_folded: true };
        let EnterStatements { insert, find, place, entered } =
            self.operations.statements::<SqliteConnection>(operation)?;
        for _ in 0..TRIES_MAX {
            if on.run(&insert, &entered)? == 1 {
                let (sql, binds) = self.operations.adding::<SqliteConnection>(BUCKET, amount);
                let value = on.first(&sql, &binds)?.ok_or_else(unsettled)?;
                return Ok(Counted { value, is_new: true });
            }
            if let Some(before) = on.first(&find, &place)? {
                operation.counted_before(before)?;
                return Ok(Counted { value: self.sum_of(on)?, is_new: false });
            }
        }
        Err(unsettled())
    }

    /// [`value`](Self::value) on a `rusqlite` connection.
    pub fn value_blocking(&self, connection: &Connection) -> Result<i64, PatternError> {
        self.sum_of(Statements(connection))
    }

    fn sum_of(&self, on: Statements<'_>) -> Result<i64, PatternError> {
        let (sql, binds) = self.operations.summing::<SqliteConnection>(BUCKET);
        on.first(&sql, &binds)?.ok_or_else(unsettled)
    }
}
