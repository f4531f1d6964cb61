//! A sum for each period.

use super::Counted;
use super::operations::{Operation, Operations, settings};
use crate::patterns::connection::PatternConnection;
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed};
use crate::patterns::transaction::Savepoint;
use crate::patterns::value::Bind;
use semel_core::time::Time;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A sum for each period of the same length: requests per minute, revenue per day.
///
/// An operation is counted in the period of its own time, which the caller passes: the time of the event, not
/// of the attempt. A retry after midnight then counts for the previous day, and only once.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool, event_id: &str, paid_at: semel::core::time::Time) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::BucketCounter;
/// use std::time::Duration;
///
/// let revenue = BucketCounter::new("revenue", Duration::from_hours(24))?;
/// let mut transaction = pool.begin().await?;
/// let day = revenue.add(&mut *transaction, event_id, 500, paid_at).await?;
/// transaction.commit().await?;
/// println!("{} on that day", day.value);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct BucketCounter {
    pub(super) operations: Operations,
    width_ms: i64,
}

settings!(BucketCounter);

impl BucketCounter {
    /// A counter with this name, in periods of `width` since 1970. The width of a counter must not change.
    pub fn new(name: impl Into<Arc<str>>, width: Duration) -> Result<Self, PatternError> {
        let width_ms = i64::try_from(width.as_millis()).ok().filter(|width| *width > 0);
        let width_ms = width_ms.ok_or_else(|| {
            PatternError::Invalid("a period has at least one millisecond, and fewer than 2^63".to_owned())
        })?;
        Ok(Self { operations: Operations::of(name.into()), width_ms })
    }

    /// Adds `amount` for an operation in the period of `at`, once, whatever period a retry names. The answer
    /// has that period's sum. The same operation with another amount is [`PatternError::Mismatch`].
    pub async fn add<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: impl fmt::Display,
        amount: i64,
        at: Time,
    ) -> Result<Counted, PatternError> {
        let operation_id = operation_id.to_string();
        let mut savepoint = Savepoint::begin(connection).await?;
        let counted = self.add_in(&mut *savepoint, &operation_id, amount, self.start(at)).await;
        savepoint.close(counted).await
    }

    async fn add_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        operation_id: &str,
        amount: i64,
        bucket: i64,
    ) -> Result<Counted, PatternError> {
        let operation = Operation { id: operation_id, amount, bucket, is_folded: true };
        if self.operations.enter(connection, operation).await? {
            let value = self.operations.add(connection, bucket, amount).await?;
            return Ok(Counted { value, is_new: true });
        }
        Ok(Counted { value: self.operations.sum(connection, bucket).await?, is_new: false })
    }

    /// The periods from that of `from` until before `until`, with their sums, in order. Periods without
    /// operations are left out.
    pub async fn buckets<C: PatternConnection>(
        &self,
        connection: &mut C,
        from: Time,
        until: Time,
    ) -> Result<Vec<(Time, i64)>, PatternError> {
        let (sql, binds) = self.listing::<C>(from, until);
        let rows = connection.rows(sql, binds).await.map_err(failed::<C>)?;
        let read = |row| -> Result<_, sqlx::Error> {
            let start = C::integer(row, 0)?.unwrap_or_default();
            Ok((Time::from_millis(start.unsigned_abs()), C::integer(row, 1)?.unwrap_or_default()))
        };
        rows.iter().map(|row| read(row).map_err(failed::<C>)).collect()
    }

    /// The query for the periods and their sums.
    pub(super) fn listing<C: Dialect>(&self, from: Time, until: Time) -> (String, Vec<Bind>) {
        let sums = self.operations.sums::<C>();
        let sql = format!(
            "SELECT bucket, value FROM {sums} WHERE counter = $1 AND bucket >= $2 AND bucket < $3 ORDER BY bucket"
        );
        (sql, vec![self.operations.name(), self.start(from).into(), milliseconds(until).into()])
    }

    pub(super) fn start(&self, at: Time) -> i64 {
        let at = milliseconds(at);
        at - at % self.width_ms
    }
}

fn milliseconds(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
