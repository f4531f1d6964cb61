//! The counters on a `rusqlite` connection.

use super::exact::BUCKET;
use super::operations::{EnterStatements, Operation, Operations, TRIES_MAX};
use super::{BucketCounter, Counted, Counter, EventCounter};
use crate::patterns::blocking::{Savepoint, Statements};
use crate::patterns::error::{PatternError, unsettled};
use rusqlite::Connection;
use semel_core::time::Time;
use sqlx::SqliteConnection;
use std::fmt;

impl Counter {
    /// [`add`](Self::add) on a `rusqlite` connection with an open transaction: in the work of
    /// [`sqlite::transact`](crate::sqlite::transact), or in the application's own transaction. Begin that
    /// with `BEGIN IMMEDIATE`.
    pub fn add_blocking(
        &self,
        connection: &Connection,
        operation_id: impl fmt::Display,
        amount: i64,
    ) -> Result<Counted, PatternError> {
        let id = &operation_id.to_string();
        let operation = Operation { id, amount, bucket: BUCKET, is_folded: true };
        self.operations.count_blocking(connection, operation)
    }

    /// [`value`](Self::value) on a `rusqlite` connection.
    pub fn value_blocking(&self, connection: &Connection) -> Result<i64, PatternError> {
        self.operations.sum_on(Statements(connection), BUCKET)
    }
}

impl BucketCounter {
    /// [`add`](Self::add) on a `rusqlite` connection with an open transaction: in the work of
    /// [`sqlite::transact`](crate::sqlite::transact), or in the application's own transaction. Begin that
    /// with `BEGIN IMMEDIATE`.
    pub fn add_blocking(
        &self,
        connection: &Connection,
        operation_id: impl fmt::Display,
        amount: i64,
        at: Time,
    ) -> Result<Counted, PatternError> {
        let id = &operation_id.to_string();
        let operation = Operation { id, amount, bucket: self.start(at), is_folded: true };
        self.operations.count_blocking(connection, operation)
    }

    /// [`buckets`](Self::buckets) on a `rusqlite` connection.
    pub fn buckets_blocking(
        &self,
        connection: &Connection,
        from: Time,
        until: Time,
    ) -> Result<Vec<(Time, i64)>, PatternError> {
        let (sql, binds) = self.listing::<SqliteConnection>(from, until);
        Statements(connection).rows(&sql, &binds, |row| {
            Ok((Time::from_millis(row.get::<_, i64>(0)?.unsigned_abs()), row.get(1)?))
        })
    }
}

impl EventCounter {
    /// [`add`](Self::add) on a `rusqlite` connection with an open transaction: in the work of
    /// [`sqlite::transact`](crate::sqlite::transact), or in the application's own transaction. Begin that
    /// with `BEGIN IMMEDIATE`.
    pub fn add_blocking(
        &self,
        connection: &Connection,
        operation_id: impl fmt::Display,
        amount: i64,
    ) -> Result<bool, PatternError> {
        let savepoint = Savepoint::begin(connection)?;
        let id = operation_id.to_string();
        let operation = Self::operation(&id, amount);
        let entered = self.operations.enter_on(Statements(connection), operation);
        savepoint.close(entered)
    }

    /// [`value`](Self::value) on a `rusqlite` connection.
    pub fn value_blocking(&self, connection: &Connection) -> Result<i64, PatternError> {
        let (sql, binds) = self.summing::<SqliteConnection>();
        Statements(connection).first(&sql, &binds)?.ok_or_else(unsettled)
    }
}

impl Operations {
    /// Enters an operation and adds its amount to the sum of its bucket, unless it was already counted.
    fn count_blocking(
        &self,
        connection: &Connection,
        operation: Operation<'_>,
    ) -> Result<Counted, PatternError> {
        let savepoint = Savepoint::begin(connection)?;
        let counted = self.count_on(Statements(connection), operation);
        savepoint.close(counted)
    }

    fn count_on(&self, on: Statements<'_>, operation: Operation<'_>) -> Result<Counted, PatternError> {
        if !self.enter_on(on, operation)? {
            return Ok(Counted { value: self.sum_on(on, operation.bucket)?, is_new: false });
        }
        let (sql, binds) = self.adding::<SqliteConnection>(operation.bucket, operation.amount);
        let value = on.first(&sql, &binds)?.ok_or_else(unsettled)?;
        Ok(Counted { value, is_new: true })
    }

    fn enter_on(&self, on: Statements<'_>, operation: Operation<'_>) -> Result<bool, PatternError> {
        let EnterStatements { insert, find, key_binds, entered } =
            self.statements::<SqliteConnection>(operation)?;
        for _ in 0..TRIES_MAX {
            if on.run(&insert, &entered)? == 1 {
                return Ok(true);
            }
            if let Some(before) = on.first(&find, &key_binds)? {
                return operation.counted_before(before).map(|()| false);
            }
        }
        Err(unsettled())
    }

    fn sum_on(&self, on: Statements<'_>, bucket: i64) -> Result<i64, PatternError> {
        let (sql, binds) = self.summing::<SqliteConnection>(bucket);
        on.first(&sql, &binds)?.ok_or_else(unsettled)
    }
}
