//! The counted operations, and the sums.

use crate::patterns::connection::{PatternConnection, remove_chunk};
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::Tables;
use crate::patterns::value::Bind;
use std::sync::Arc;
use std::time::Duration;

const OPERATIONS: &str = "counter_operations";
const SUMS: &str = "counter_sums";
/// How long a duplicate waits for its operation.
const WAIT: Duration = Duration::from_secs(2);
/// How long operations are remembered.
const WINDOW: Duration = Duration::from_hours(32 * 24);
pub(super) const TRIES_MAX: u32 = 5;
/// Counter and operation are parts of one index.
const BYTES_MAX: usize = 1_000;

/// The common part of all counters.
#[derive(Debug, Clone)]
pub(super) struct Operations {
    name: Arc<str>,
    pub(super) tables: Tables,
    pub(super) wait: Duration,
    pub(super) window: Duration,
}

/// One operation to count.
#[derive(Clone, Copy)]
pub(super) struct Operation<'a> {
    pub(super) id: &'a str,
    pub(super) amount: i64,
    pub(super) bucket: i64,
    /// Whether its amount is added to the sum by the same transaction.
    pub(super) is_folded: bool,
}

impl Operation<'_> {
    /// Refuses it if it was counted with another amount.
    pub(super) fn counted_before(&self, amount: i64) -> Result<(), PatternError> {
        if amount == self.amount {
            return Ok(());
        }
        Err(PatternError::Mismatch(format!(
            "the operation was counted before with the amount {amount}, and now has {}",
            self.amount
        )))
    }
}

/// The statements that enter an operation, and their binds.
pub(super) struct EnterStatements {
    pub(super) insert: String,
    pub(super) find: String,
    /// For `find`: counter and operation.
    pub(super) key_binds: Vec<Bind>,
    /// For `insert`: the same, bucket and amount.
    pub(super) entered: Vec<Bind>,
}

impl Operations {
    pub(super) fn of(name: Arc<str>) -> Self {
        Self { name, tables: Tables::default(), wait: WAIT, window: WINDOW }
    }

    pub(super) fn name(&self) -> Bind {
        Bind::from(&*self.name)
    }

    pub(super) fn operations<C: Dialect>(&self) -> String {
        C::table(&self.tables, OPERATIONS)
    }

    pub(super) fn sums<C: Dialect>(&self) -> String {
        C::table(&self.tables, SUMS)
    }

    /// Enters an operation, and returns whether it is new. One that was counted with another amount is
    /// refused.
    pub(super) async fn enter<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation: Operation<'_>,
    ) -> Result<bool, PatternError> {
        let EnterStatements { insert, find, key_binds, entered } = self.statements::<C>(operation)?;
        for _ in 0..TRIES_MAX {
            let inserted = connection.insert_waiting(insert.clone(), entered.clone(), self.wait).await;
            if inserted.map_err(failed::<C>)? == 1 {
                return Ok(true);
            }
            let rows = connection.rows(find.clone(), key_binds.clone()).await.map_err(failed::<C>)?;
            let Some(row) = rows.first() else { continue };
            let amount = C::integer(row, 0).map_err(failed::<C>)?.unwrap_or_default();
            return operation.counted_before(amount).map(|()| false);
        }
        Err(unsettled())
    }

    /// The statements that enter an operation; refused if it is too long for an index.
    pub(super) fn statements<C: Dialect>(
        &self,
        operation: Operation<'_>,
    ) -> Result<EnterStatements, PatternError> {
        for (label, text) in [("counter's name", &*self.name), ("operation id", operation.id)] {
            if text.is_empty() || text.len() > BYTES_MAX || text.contains('\0') {
                let reason =
                    format!("the {label} has {} bytes; 1 to {BYTES_MAX} without NUL are allowed", text.len());
                return Err(PatternError::Invalid(reason));
            }
        }
        let (operations, now) = (self.operations::<C>(), C::now(&self.tables));
        let is_folded = if operation.is_folded { "TRUE" } else { "FALSE" };
        Ok(EnterStatements {
            insert: format!(
                "INSERT INTO {operations} (counter, operation_id, bucket, amount, is_folded, counted_at) \
                 VALUES ($1, $2, $3, $4, {is_folded}, {now}) ON CONFLICT DO NOTHING"
            ),
            find: format!("SELECT amount FROM {operations} WHERE counter = $1 AND operation_id = $2"),
            key_binds: vec![self.name(), operation.id.into()],
            entered: vec![self.name(), operation.id.into(), operation.bucket.into(), operation.amount.into()],
        })
    }

    /// Adds to a sum, and returns the new sum.
    pub(super) async fn add<C: PatternConnection>(
        &self,
        connection: &mut C,
        bucket: i64,
        amount: i64,
    ) -> Result<i64, PatternError> {
        let (sql, binds) = self.adding::<C>(bucket, amount);
        first_integer::<C>(&connection.rows(sql, binds).await.map_err(failed::<C>)?)
    }

    /// The statement that adds to a sum and returns it.
    pub(super) fn adding<C: Dialect>(&self, bucket: i64, amount: i64) -> (String, Vec<Bind>) {
        let sums = self.sums::<C>();
        let sql = format!(
            "INSERT INTO {sums} AS held (counter, bucket, value) VALUES ($1, $2, $3) \
             ON CONFLICT (counter, bucket) DO UPDATE SET value = held.value + excluded.value RETURNING value"
        );
        (sql, vec![self.name(), bucket.into(), amount.into()])
    }

    /// A sum; 0 if nothing was counted.
    pub(super) async fn sum<C: PatternConnection>(
        &self,
        connection: &mut C,
        bucket: i64,
    ) -> Result<i64, PatternError> {
        let (sql, binds) = self.summing::<C>(bucket);
        first_integer::<C>(&connection.rows(sql, binds).await.map_err(failed::<C>)?)
    }

    /// The query for a sum.
    pub(super) fn summing<C: Dialect>(&self, bucket: i64) -> (String, Vec<Bind>) {
        let sums = self.sums::<C>();
        let sql =
            format!("SELECT COALESCE((SELECT value FROM {sums} WHERE counter = $1 AND bucket = $2), 0)");
        (sql, vec![self.name(), bucket.into()])
    }

    /// Removes up to `chunk` operations that were counted longer ago than the window and are part of a sum.
    pub(super) async fn purge<C: PatternConnection>(
        &self,
        connection: &mut C,
        chunk: u32,
    ) -> Result<u64, PatternError> {
        let (operations, now) = (self.operations::<C>(), C::now(&self.tables));
        let sql = format!(
            "DELETE FROM {operations} WHERE counter = $1 AND operation_id IN (SELECT operation_id FROM {operations} \
             WHERE counter = $1 AND is_folded AND counted_at < {now} - $2 ORDER BY counted_at LIMIT $3 {locked})",
            locked = C::LOCKED
        );
        let window = i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX / 2);
        remove_chunk(connection, sql, vec![self.name(), window.into(), i64::from(chunk).into()]).await
    }
}

pub(super) fn first_integer<C: PatternConnection>(
    rows: &[crate::patterns::connection::PatternRow<C>],
) -> Result<i64, PatternError> {
    let row = rows.first().ok_or(PatternError::Database(sqlx::Error::RowNotFound.into()))?;
    Ok(C::integer(row, 0).map_err(failed::<C>)?.unwrap_or_default())
}

/// The settings of all counters, and the purge.
macro_rules! settings {
    ($counter:ident) => {
        impl $counter {
            /// The location of the tables.
            #[must_use]
            pub fn tables(mut self, tables: $crate::patterns::Tables) -> Self {
                self.operations.tables = tables;
                self
            }

            /// How long a duplicate waits for an operation that another transaction is counting, on
            /// PostgreSQL. Default: 2 s. On SQLite the connection's `busy_timeout` applies.
            #[must_use]
            pub fn wait(mut self, wait: std::time::Duration) -> Self {
                self.operations.wait = wait;
                self
            }

            /// How long operations are remembered. A later duplicate is counted again. Default: 32 days. Only
            /// [`purge`](Self::purge) removes them.
            #[must_use]
            pub fn window(mut self, window: std::time::Duration) -> Self {
                self.operations.window = window;
                self
            }

            /// Removes up to `chunk` operations that were counted longer ago than the [window](Self::window),
            /// in a separate transaction, and returns their number. The sum does not change.
            pub async fn purge<C: $crate::patterns::PatternConnection>(
                &self,
                connection: &mut C,
                chunk: u32,
            ) -> Result<u64, $crate::patterns::PatternError> {
                self.operations.purge(connection, chunk).await
            }
        }
    };
}
pub(super) use settings;
