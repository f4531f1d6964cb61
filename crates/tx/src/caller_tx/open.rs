//! The transaction that the application has opened, and its connection.

use super::commit::{Committed, commit};
use super::dialect::Dialect;
use crate::error::Error;
use semel::local::{DatabaseTimeouts, Unanswered};
use sqlx::Transaction;
use sqlx_core::transaction::TransactionManager as _;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// An open transaction. Dropping it rolls it back, and its connection can be used again.
/// [`Dialect::leave_commit`] describes what happens to a connection whose commit has no answer.
pub(crate) struct Open<'c, D: Dialect> {
    transaction: Option<Transaction<'c, D>>,
    is_committing: bool,
}

impl<'c, D: Dialect> Open<'c, D> {
    pub(crate) fn new(transaction: Transaction<'c, D>) -> Self {
        Self { transaction: Some(transaction), is_committing: false }
    }

    /// The transaction, as its owner passed it.
    pub(crate) fn into_transaction(mut self) -> Transaction<'c, D> {
        self.transaction.take().expect(PRESENT)
    }

    /// How many nested transactions are open.
    pub(crate) fn depth(&self) -> usize {
        D::TransactionManager::get_transaction_depth(self)
    }

    /// Rolls everything back, including nested transactions.
    pub(crate) async fn roll_back(mut self) -> Result<(), Error> {
        if self.depth() == 0 {
            D::end_unknown(&mut self).await.map_err(Error::Database)?;
        } else {
            D::before_rollback(&mut self);
        }
        for _ in 0..self.depth() {
            if let Err(error) = D::TransactionManager::rollback(&mut self).await {
                self.is_committing = true;
                return Err(Error::Database(error));
            }
        }
        drop(self.into_transaction());
        Ok(())
    }

    /// Commits, at most the store's timeout after `written_at`, when the last write began. A connection
    /// without an answer is closed if that is possible.
    pub(crate) async fn commit(
        mut self,
        target: &D::Target,
        timeouts: &DatabaseTimeouts,
        unanswered: Unanswered,
        written_at: Duration,
        seen: &D::Seen,
    ) -> Committed {
        self.is_committing = true;
        let committed = commit::<D>(timeouts, unanswered, D::commit(&mut self), written_at, seen).await;
        match &committed {
            Committed::Yes => self.is_committing = self.depth() > 0,
            Committed::No(_) => {
                self.is_committing = false;
                // Best effort: dropping it also rolls it back.
                drop(timeouts.bounded(self.roll_back()).await);
            }
            Committed::Unknown(_) => self.is_committing = !D::close(&mut self, target, timeouts).await,
        }
        committed
    }
}

const PRESENT: &str = "only drop and the last call take it out";

impl<D: Dialect> Deref for Open<'_, D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        self.transaction.as_ref().expect(PRESENT)
    }
}

impl<D: Dialect> DerefMut for Open<'_, D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        self.transaction.as_mut().expect(PRESENT)
    }
}

impl<D: Dialect> Drop for Open<'_, D> {
    fn drop(&mut self) {
        let Some(transaction) = &mut self.transaction else { return };
        if self.is_committing {
            return D::leave_commit(transaction);
        }
        let depth = D::TransactionManager::get_transaction_depth(transaction);
        // It is over: do not begin anything for a rollback that sqlx leaves out.
        if depth == 0 {
            return;
        }
        D::before_rollback(transaction);
        // sqlx itself rolls back the outermost one.
        for _ in 1..depth {
            D::TransactionManager::start_rollback(transaction);
        }
    }
}
