//! A connection of the pool, closed unless it is known to be good.

use crate::error::Error;
use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

/// A connection of the pool. Dropped, it is closed and never returned: a transaction may be open on it, or a commit of which nobody
/// knows what became. Whoever knows better [keeps](Self::keep) it.
pub(super) struct Lent(Option<PoolConnection<Postgres>>);

impl Lent {
    pub(super) async fn from(pool: &PgPool) -> Result<Self, Error> {
        pool.acquire().await.map(|connection| Self(Some(connection))).map_err(Error::Database)
    }

    /// The connection.
    pub(super) fn get(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("only keep and drop take it out")
    }

    /// Gives it back to the pool: nothing is open on it.
    pub(super) fn keep(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}
