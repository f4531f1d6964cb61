//! A connection of the pool, closed unless it is known to be good.

use crate::error::Error;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

/// A connection of the pool. Dropping it closes it: a transaction may be open on it, or a commit with an
/// unknown result. If it is known to be clean, [keep](Self::keep) it.
pub(super) struct BorrowedConnection(Option<PoolConnection<Postgres>>);

impl BorrowedConnection {
    pub(super) async fn from(pool: &PgPool) -> Result<Self, Error> {
        pool.acquire().await.map(|connection| Self(Some(connection))).map_err(Error::Database)
    }

    /// The connection.
    pub(super) fn get(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("only keep and drop take it out")
    }

    /// Returns it to the pool: nothing is open on it.
    pub(super) fn keep(mut self) {
        drop(self.0.take());
    }
}

impl Drop for BorrowedConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
