//! The inbox on a `rusqlite` connection.

use super::mark::{Found, MarkStatements, TRIES_MAX, compared, mismatch};
use super::{Inbox, InboxResult, Message};
use crate::error::BoxError;
use crate::patterns::blocking::{Savepoint, Statements};
use crate::patterns::error::{PatternError, unsettled};
use rusqlite::Connection;
use sqlx::SqliteConnection;

impl Inbox {
    /// [`once`](Self::once) on a `rusqlite` connection with an open transaction: in the work of
    /// [`sqlite::transact`](crate::sqlite::transact), or in the application's own transaction. Begin that
    /// with `BEGIN IMMEDIATE`.
    ///
    /// ```no_run
    /// # fn example(tx: &rusqlite::Connection, body: Vec<u8>) -> Result<(), semel_tx::BoxError> {
    /// # use semel_tx::sqlite::rusqlite;
    /// use semel_tx::patterns::{Inbox, Message, MessageId};
    ///
    /// let message = Message::json("payments", MessageId::new("evt-1001")?, body)?;
    /// Inbox::new("billing").once_blocking(tx, &message, |tx, _| {
    ///     tx.execute("UPDATE accounts SET balance = balance + 5 WHERE id = 7", [])?;
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn once_blocking<B, T>(
        &self,
        connection: &Connection,
        message: &Message<B>,
        work: impl FnOnce(&Connection, &Message<B>) -> Result<T, BoxError>,
    ) -> Result<InboxResult<T>, PatternError> {
        let savepoint = Savepoint::begin(connection)?;
        let processed = match self.mark_blocking(connection, message) {
            Ok(Found::New) => {
                work(connection, message).map(InboxResult::Processed).map_err(PatternError::Work)
            }
            Ok(Found::Same) => Ok(InboxResult::Duplicate),
            Ok(Found::Other) => Err(mismatch()),
            Err(error) => Err(error),
        };
        let processed = savepoint.close(processed);
        self.watch(message, &processed);
        processed
    }

    fn mark_blocking<B>(&self, connection: &Connection, message: &Message<B>) -> Result<Found, PatternError> {
        let MarkStatements { insert, find, key, marked } = self.statements::<SqliteConnection, B>(message);
        let on = Statements(connection);
        for _ in 0..TRIES_MAX {
            if on.run(&insert, &marked)? == 1 {
                return Ok(Found::New);
            }
            if let Some(found) = on.first::<Vec<u8>>(&find, &key)? {
                return Ok(compared(&found, message));
            }
        }
        Err(unsettled())
    }
}
