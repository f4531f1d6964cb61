//! The connections that the patterns work on.

use super::dialect::Dialect;
use super::error::{PatternError, failed};
use super::transaction::needs_none;
use std::pin::Pin;

/// The return type of a pattern's work: `Box::pin(async move { … })`.
pub type WorkFuture<'c, T> = Pin<Box<dyn Future<Output = T> + Send + 'c>>;

/// A row of the connection's database.
pub type PatternRow<C> = <<C as sqlx::Connection>::Database as sqlx::Database>::Row;

/// A connection that the patterns work on: `sqlx::PgConnection` or `sqlx::SqliteConnection`. For a
/// `sqlx::Transaction`, pass `&mut *transaction`.
pub trait PatternConnection: Dialect {}

impl<C: Dialect> PatternConnection for C {}

/// Removes up to `chunk` rows in a separate transaction, and returns their number.
pub(super) async fn remove_chunk<C: PatternConnection>(
    connection: &mut C,
    sql: String,
    binds: Vec<super::value::Bind>,
) -> Result<u64, PatternError> {
    needs_none(connection).await?;
    connection.run(sql, binds).await.map_err(failed::<C>)
}
