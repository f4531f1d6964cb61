//! Savepoints in the caller's transaction, and the transactions of batches and of compaction.
//!
//! Both are ended by statements of their own, and compared with what the database says. sqlx counts nested
//! transactions without asking the server, and its count is wrong after a failed or dropped `begin`.

use super::connection::PatternConnection;
use super::dialect::Dialect;
use super::error::{Fault, PatternError, failed};
use super::savepoint_name::SavepointName;
use sqlx_core::sql_str::SqlSafeStr as _;
use sqlx_core::transaction::TransactionManager;
use std::ops::{Deref, DerefMut};

type Transactions<C> = <<C as sqlx::Connection>::Database as sqlx::Database>::TransactionManager;

/// A savepoint in an open transaction. If it is dropped, it is undone before the next statement, or the
/// transaction cannot be committed: a cancelled caller leaves nothing half written.
pub(super) struct Savepoint<'c, C: Dialect> {
    connection: &'c mut C,
    name: SavepointName,
    /// The depth of sqlx before.
    depth: usize,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// A statement that begins or ends it may have been sent, and has no answer.
    Unanswered,
    Open,
    Ended,
}

impl<'c, C: PatternConnection> Savepoint<'c, C> {
    /// Refuses a connection without a transaction: a mark could be committed without its effect.
    pub(super) async fn begin(connection: &'c mut C) -> Result<Self, PatternError> {
        let depth = connection.depth().await.map_err(failed::<C>)?;
        if depth == 0 {
            return Err(PatternError::NoTransaction);
        }
        let name = SavepointName::on(connection);
        let mut savepoint = Self { connection, name, depth, progress: Progress::Unanswered };
        match savepoint.connection.begin_savepoint(&savepoint.name).await {
            Ok(true) => {
                savepoint.progress = Progress::Open;
                Ok(savepoint)
            }
            Ok(false) => Err(savepoint.ended().await),
            Err(error) => Err(savepoint.not_begun(error).await),
        }
    }

    /// Afterwards the transaction is as it was before, or over.
    async fn not_begun(&mut self, error: sqlx::Error) -> PatternError {
        let is_refused = matches!(error, sqlx::Error::Database(_));
        // Otherwise the connection is broken, and nothing of the transaction can be committed.
        if is_refused && !self.connection.restore_after(&error, &self.name).await {
            return self.ended().await;
        }
        self.set_ended();
        failed::<C>(error)
    }

    fn set_ended(&mut self) {
        self.progress = Progress::Ended;
        self.name.set_free();
    }

    /// Fails if the work has ended the transaction, or if a statement of it has failed without the work
    /// reporting it. Called after the work and before anything else is written.
    pub(super) async fn verify(&mut self) -> Result<(), PatternError> {
        if self.connection.depth().await.map_err(failed::<C>)? != self.depth {
            return Err(PatternError::TransactionEnded);
        }
        match self.connection.has_savepoint(&self.name).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(PatternError::TransactionEnded),
            Err(error) => Err(hidden::<C>(error)),
        }
    }

    /// Keeps the changes of a success, and undoes those of an error. After an error the transaction is as it
    /// was before, except for [`PatternError::TransactionEnded`] and a lost connection.
    pub(super) async fn close<T>(mut self, result: Result<T, PatternError>) -> Result<T, PatternError> {
        let error = match result {
            Ok(value) => match self.release().await {
                Ok(()) => return Ok(value),
                Err(error) => error,
            },
            Err(error) => error,
        };
        if self.progress == Progress::Ended {
            return Err(error);
        }
        match self.undo().await {
            Err(ended @ PatternError::TransactionEnded) => Err(ended),
            // Without an answer the connection is broken, and nothing of the transaction can be committed.
            _ => Err(error),
        }
    }

    async fn release(&mut self) -> Result<(), PatternError> {
        if self.connection.depth().await.map_err(failed::<C>)? != self.depth {
            return Err(self.ended().await);
        }
        self.end_running().await?;
        self.connection.release_savepoint(&self.name).await.map_err(hidden::<C>)?;
        self.set_ended();
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), PatternError> {
        if self.connection.depth().await.map_err(failed::<C>)? != self.depth {
            return Err(self.ended().await);
        }
        self.end_running().await?;
        match self.connection.undo_savepoint(&self.name).await {
            Ok(()) => {
                self.set_ended();
                Ok(())
            }
            Err(sqlx::Error::Database(_)) => Err(self.ended().await),
            Err(error) => Err(failed::<C>(error)),
        }
    }

    /// Waits until nothing else runs on the connection: from here on, whatever has no answer ends the savepoint.
    async fn end_running(&mut self) -> Result<(), PatternError> {
        self.connection.flush().await.map_err(failed::<C>)?;
        self.progress = Progress::Unanswered;
        Ok(())
    }

    /// The whole transaction is rolled back by its owner.
    pub(super) fn forget(mut self) {
        self.set_ended();
    }

    /// Prevents that anything more is committed in place of the transaction.
    pub(super) async fn ended(&mut self) -> PatternError {
        self.connection.abandon(self.depth).await;
        self.set_ended();
        PatternError::TransactionEnded
    }
}

/// The database refuses to go on after the work, which has reported no error.
fn hidden<C: Dialect>(error: sqlx::Error) -> PatternError {
    match C::fault(&error) {
        Fault::Refused => PatternError::Work(
            format!("one of its statements failed, and it ignored the error ({error})").into(),
        ),
        _ => failed::<C>(error),
    }
}

impl<C: Dialect> Deref for Savepoint<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.connection
    }
}

impl<C: Dialect> DerefMut for Savepoint<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection
    }
}

impl<C: Dialect> Drop for Savepoint<'_, C> {
    fn drop(&mut self) {
        match self.progress {
            Progress::Unanswered => self.connection.leave_unanswered(&self.name, self.depth),
            Progress::Open => self.connection.leave_savepoint(&self.name, self.depth),
            Progress::Ended => {}
        }
    }
}

/// A transaction of a batch or a compaction. If it is dropped, it is rolled back before the next statement,
/// even if it was only about to begin.
pub(super) struct OwnTransaction<'c, C: Dialect> {
    connection: &'c mut C,
    is_open: bool,
}

impl<'c, C: PatternConnection> OwnTransaction<'c, C> {
    pub(super) async fn begin(connection: &'c mut C) -> Result<Self, PatternError> {
        needs_none(connection).await?;
        let transaction = Self { connection, is_open: true };
        let begin = Some(C::BEGIN.into_sql_str());
        Transactions::<C>::begin(transaction.connection, begin).await.map_err(failed::<C>)?;
        Ok(transaction)
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        let committed = Transactions::<C>::commit(self.connection).await;
        match &committed {
            Ok(()) => self.is_open = false,
            // Best effort: dropping it also rolls it back.
            Err(sqlx::Error::Database(_)) => drop(self.roll_back().await),
            Err(_) => {}
        }
        committed
    }

    pub(super) async fn roll_back(mut self) -> Result<(), PatternError> {
        self.connection.before_rollback().await;
        Transactions::<C>::rollback(self.connection).await.map_err(failed::<C>)?;
        self.is_open = false;
        Ok(())
    }
}

impl<C: Dialect> Deref for OwnTransaction<'_, C> {
    type Target = C;

    fn deref(&self) -> &C {
        self.connection
    }
}

impl<C: Dialect> DerefMut for OwnTransaction<'_, C> {
    fn deref_mut(&mut self) -> &mut C {
        self.connection
    }
}

impl<C: Dialect> Drop for OwnTransaction<'_, C> {
    fn drop(&mut self) {
        if self.is_open {
            self.connection.leave_transaction();
        }
    }
}

/// Refuses a connection with a transaction.
pub(super) async fn needs_none<C: PatternConnection>(connection: &mut C) -> Result<(), PatternError> {
    match connection.depth().await.map_err(failed::<C>)? {
        0 => Ok(()),
        _ => Err(PatternError::InTransaction),
    }
}
