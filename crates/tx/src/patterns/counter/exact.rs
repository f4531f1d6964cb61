//! A sum that is exact at every commit.

use super::Counted;
use super::operations::{Operation, Operations, settings};
use crate::patterns::connection::PatternConnection;
use crate::patterns::error::PatternError;
use crate::patterns::transaction::Savepoint;
use std::fmt;
use std::sync::Arc;

/// Counters without periods have one bucket.
pub(super) const BUCKET: i64 = 0;

/// A sum that is exact at every commit: the operation's ID and its amount are in one transaction.
///
/// All writers change the same row, so transactions on one counter wait for each other. For many concurrent
/// writers use [`EventCounter`](super::EventCounter).
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool, operation_id: semel_core::id::OperationId) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::Counter;
///
/// let mut transaction = pool.begin().await?;
/// let counted = Counter::new("balance:acct-7").add(&mut *transaction, operation_id, 500).await?;
/// transaction.commit().await?;
/// println!("{} (counted now: {})", counted.value, counted.is_new);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Counter {
    pub(super) operations: Operations,
}

settings!(Counter);

impl Counter {
    /// A counter with this name.
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self { operations: Operations::of(name.into()) }
    }

    /// Adds `amount` for an operation, once. The same operation with another amount is
    /// [`PatternError::Mismatch`].
    ///
    /// `operation_id` is any ID that stays the same over retries, as itself or as text: an
    /// [`OperationId`](semel_core::id::OperationId), an event ID, a message ID.
    pub async fn add<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: impl fmt::Display,
        amount: i64,
    ) -> Result<Counted, PatternError> {
        let operation_id = operation_id.to_string();
        let mut savepoint = Savepoint::begin(connection).await?;
        let counted = self.add_in(&mut *savepoint, &operation_id, amount).await;
        savepoint.close(counted).await
    }

    async fn add_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: &str,
        amount: i64,
    ) -> Result<Counted, PatternError> {
        let operation = Operation { id: operation_id, amount, bucket: BUCKET, is_folded: true };
        if self.operations.enter(connection, operation).await? {
            let value = self.operations.add(connection, BUCKET, amount).await?;
            return Ok(Counted { value, is_new: true });
        }
        Ok(Counted { value: self.operations.sum(connection, BUCKET).await?, is_new: false })
    }

    /// The sum; 0 if nothing was counted.
    pub async fn value<C: PatternConnection>(&self, connection: &mut C) -> Result<i64, PatternError> {
        self.operations.sum(connection, BUCKET).await
    }
}
