//! The connections that the patterns work on.

use super::dialect::Dialect;
use super::error::{PatternError, failed};
use sqlx::Transaction;
use std::pin::Pin;

/// What the work of a pattern returns: `Box::pin(async move { … })`.
pub type WorkFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// A row of the connection's database.
pub type PatternRow<C> = <<C as sqlx::Connection>::Database as sqlx::Database>::Row;

/// A connection that the patterns work on: `sqlx::PgConnection` or `sqlx::SqliteConnection`. Of a `sqlx::Transaction`, hand in `&mut *transaction`.
pub trait PatternConnection: Dialect {}

impl<C: Dialect> PatternConnection for C {}

/// Refuses a connection without a transaction: a mark that is committed by itself would be one without its effect.
pub(super) fn needs_transaction<C: PatternConnection>(connection: &C) -> Result<(), PatternError> {
    if connection.is_in_transaction() { Ok(()) } else { Err(PatternError::NoTransaction) }
}

/// Refuses a connection with one.
pub(super) fn needs_none<C: PatternConnection>(connection: &C) -> Result<(), PatternError> {
    if connection.is_in_transaction() { Err(PatternError::InTransaction) } else { Ok(()) }
}

/// A savepoint in the caller's transaction. Dropped, it is rolled back before the next statement, so that a caller that goes away in the middle
/// leaves nothing half written.
pub(super) async fn savepoint<C: PatternConnection>(
    connection: &mut C,
) -> Result<Transaction<'_, C::Database>, PatternError> {
    needs_transaction(connection)?;
    connection.begin().await.map_err(failed::<C>)
}

/// Ends a savepoint. After an error the transaction is what it was before.
pub(super) async fn close<C: PatternConnection, T>(
    savepoint: Transaction<'_, C::Database>,
    result: Result<T, PatternError>,
) -> Result<T, PatternError> {
    match result {
        Ok(value) => {
            savepoint.commit().await.map_err(failed::<C>)?;
            Ok(value)
        }
        Err(error) => {
            // Where this fails, the connection is broken, and nothing of the transaction can be committed.
            drop(savepoint.rollback().await);
            Err(error)
        }
    }
}

/// Removes up to `chunk` rows in a transaction of its own, and answers with how many there were.
pub(super) async fn remove_chunk<C: PatternConnection>(
    connection: &mut C,
    sql: String,
    binds: Vec<super::value::Bind>,
) -> Result<u64, PatternError> {
    needs_none(connection)?;
    connection.run(sql, binds).await.map_err(failed::<C>)
}
