//! A sum that is calculated when it is read.

use super::exact::BUCKET;
use super::operations::{Operation, Operations, first_integer, settings};
use crate::patterns::connection::PatternConnection;
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{Fault, PatternError, failed};
use crate::patterns::transaction::{OwnTransaction, Savepoint};
use crate::patterns::value::Bind;
use std::fmt;
use std::sync::Arc;

/// A counter for many concurrent writers: each operation is a separate row, and the sum is calculated when it
/// is read.
///
/// Writers do not wait for each other. [`compact`](Self::compact) adds rows to a stored sum, so that reading
/// stays fast; their operation ids stay for the [window](Self::window).
///
/// ```no_run
/// # #[cfg(feature = "sqlite")]
/// # async fn example(mut connection: sqlx::SqliteConnection) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::EventCounter;
/// use sqlx::Connection as _;
///
/// let downloads = EventCounter::new("downloads");
/// let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
/// downloads.add(&mut *transaction, "evt-1001", 1).await?;
/// transaction.commit().await?;
///
/// // Now and then, on any node:
/// while downloads.compact(&mut connection, 1_000).await? == 1_000 {}
/// println!("{}", downloads.value(&mut connection).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct EventCounter {
    pub(super) operations: Operations,
}

settings!(EventCounter);

impl EventCounter {
    /// A counter with this name. Do not use one name for counters of two kinds.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { operations: Operations::of(name.into()) }
    }

    /// Enters an operation with its amount, once, and returns whether it is new. The same operation with
    /// another amount is [`PatternError::Mismatch`]. An error leaves the transaction as it was.
    pub async fn add<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: impl fmt::Display,
        amount: i64,
    ) -> Result<bool, PatternError> {
        let operation_id = operation_id.to_string();
        let operation = Self::operation(&operation_id, amount);
        let mut savepoint = Savepoint::begin(connection).await?;
        let entered = self.operations.enter(&mut *savepoint, operation).await;
        savepoint.close(entered).await
    }

    /// An operation as it is entered: compaction adds it to the sum.
    pub(super) fn operation(id: &str, amount: i64) -> Operation<'_> {
        Operation { id, amount, bucket: BUCKET, is_folded: false }
    }

    /// The sum of all counted operations.
    pub async fn value<C: PatternConnection>(&self, connection: &mut C) -> Result<i64, PatternError> {
        let (sql, binds) = self.summing::<C>();
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        first_integer::<C>(&rows)
    }

    /// The query for the sum. One statement, so that a concurrent compaction is seen completely or not at
    /// all.
    pub(super) fn summing<C: Dialect>(&self) -> (String, Vec<Bind>) {
        let sql = format!(
            "SELECT CAST(COALESCE((SELECT value FROM {} WHERE counter = $1 AND bucket = 0), 0) \
             + COALESCE((SELECT sum(amount) FROM {} WHERE counter = $1 AND NOT is_folded), 0) AS bigint)",
            self.operations.sums::<C>(),
            self.operations.operations::<C>()
        );
        (sql, vec![self.operations.name()])
    }

    /// Adds up to `chunk` operations to the stored sum, in a separate transaction, and returns their number.
    /// Fewer than `chunk` means that there are no more for now. Safe to run on several nodes at once.
    pub async fn compact<C: PatternConnection>(
        &self,
        connection: &mut C,
        chunk: u32,
    ) -> Result<u64, PatternError> {
        let mut transaction = OwnTransaction::begin(connection).await?;
        let folded = match self.fold(&mut *transaction, chunk).await {
            Ok(folded) => folded,
            Err(error) => {
                drop(transaction.roll_back().await);
                return Err(error);
            }
        };
        match transaction.commit().await {
            Ok(()) => Ok(folded),
            Err(error) if C::fault(&error) == Fault::Unknown => {
                Err(PatternError::CommitInDoubt(error.into()))
            }
            Err(error) => Err(failed::<C>(error)),
        }
    }

    async fn fold<C: PatternConnection>(&self, connection: &mut C, chunk: u32) -> Result<u64, PatternError> {
        let operations = self.operations.operations::<C>();
        let sql = format!(
            "UPDATE {operations} SET is_folded = TRUE WHERE counter = $1 AND operation_id IN (SELECT operation_id FROM {operations} \
             WHERE counter = $1 AND NOT is_folded ORDER BY operation_id LIMIT $2 {locked}) RETURNING amount",
            locked = C::LOCKED
        );
        let binds = vec![self.operations.name(), i64::from(chunk).into()];
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        let mut sum = 0_i64;
        for row in &rows {
            let amount = C::integer(row, 0).map_err(failed::<C>)?.unwrap_or_default();
            let overflow = || PatternError::Invalid("the sum is larger than 64 bits".to_owned());
            sum = sum.checked_add(amount).ok_or_else(overflow)?;
        }
        if !rows.is_empty() {
            self.operations.add(connection, BUCKET, sum).await?;
        }
        Ok(u64::try_from(rows.len()).unwrap_or(u64::MAX))
    }
}
