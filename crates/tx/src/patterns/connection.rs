//! The connections that the patterns work on.

use super::dialect::Dialect;
use super::error::{PatternError, failed};
use sqlx::Transaction;
use std::pin::Pin;

/// The return type of a pattern's work: `Box::pin(async move { … })`.
pub type WorkFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// A row of the connection's database.
pub type PatternRow<C> = <<C as sqlx::Connection>::Database as sqlx::Database>::Row;

/// A connection that the patterns work on: `sqlx::PgConnection` or `sqlx::SqliteConnection`. For a
/// `sqlx::Transaction`, pass `&mut *transaction`.
pub trait PatternConnection: Dialect {}

impl<C: Dialect> PatternConnection for C {}

/// Refuses a connection without a transaction: a mark could be committed without its effect.
pub(super) fn needs_transaction<C: PatternConnection>(connection: &C) -> Result<(), PatternError> {
    if connection.is_in_transaction() { Ok(()) } else { Err(PatternError::NoTransaction) }
}

/// Refuses a connection with a transaction.
pub(super) fn needs_none<C: PatternConnection>(connection: &C) -> Result<(), PatternError> {
    if connection.is_in_transaction() { Err(PatternError::InTransaction) } else { Ok(()) }
}

/// A savepoint in the caller's transaction. If it is dropped, it is rolled back before the next statement, so
/// that a cancelled caller leaves nothing half written.
pub(super) async fn savepoint<C: PatternConnection>(
    connection: &mut C,
) -> Result<Transaction<'_, C::Database>, PatternError> {
    needs_transaction(connection)?;
    connection.begin().await.map_err(failed::<C>)
}

/// Ends a savepoint. After an error the transaction is as it was before.
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
            // If this fails, the connection is broken, and nothing of the transaction can be committed.
            drop(savepoint.rollback().await);
            Err(error)
        }
    }
}

/// Removes up to `chunk` rows in a separate transaction, and returns their number.
pub(super) async fn remove_chunk<C: PatternConnection>(
    connection: &mut C,
    sql: String,
    binds: Vec<super::value::Bind>,
) -> Result<u64, PatternError> {
    needs_none(connection)?;
    connection.run(sql, binds).await.map_err(failed::<C>)
}
