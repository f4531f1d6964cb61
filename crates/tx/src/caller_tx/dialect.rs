//! The operations that differ between databases.

use crate::error::Error;
use semel::local::{DatabaseTimeouts, LocalLook, LocalWrites};
use semel_core::id::CommandId;
use semel_core::machine::{Found, Write, WriteResult};
use semel_core::store;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

/// The command's lock, and the other ID that it may be stored under.
pub(crate) type Ids = (CommandId, Option<CommandId>);

/// The statements of a database for manual commands. Only this crate implements it.
pub trait Dialect: sqlx::Database {
    /// What the statements need to know about the database.
    type Target: Clone + Send + Sync;
    /// What was read before the work: the write depends on it.
    type Seen: Send + Sync;
    /// A record's row. Encoded before anything is written, because it may be too large.
    type RecordRow: Send;

    /// Takes the command's lock if it is free, and reads what is stored under its IDs. A server rolls the
    /// transaction back if this process sends nothing for `idle_max`, because it is frozen or cut off.
    fn look(
        connection: &mut Self::Connection,
        target: &Self::Target,
        ids: Ids,
        idle_max: Duration,
        timeouts: &DatabaseTimeouts,
    ) -> impl Future<Output = Result<(LocalLook, Self::Seen), Error>> + Send;

    /// The transaction goes back to the application: undoes what [`look`](Self::look) set for it.
    fn give_back(
        connection: &mut Self::Connection,
        seen: &Self::Seen,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Marks the transaction, if that is how [`write`](Self::write) recognises it.
    fn mark(connection: &mut Self::Connection) -> impl Future<Output = Result<(), Error>> + Send;

    /// Rolls back the transaction's writes, and begins it again.
    fn restart(connection: &mut Self::Connection) -> impl Future<Output = Result<(), Error>> + Send;

    /// The row for a record.
    fn row(id: CommandId, write: &Write) -> Result<Self::RecordRow, store::Error>;

    /// Writes everything that a local command stores, if the transaction is still the marked one.
    fn write(
        connection: &mut Self::Connection,
        target: &Self::Target,
        seen: &Self::Seen,
        writes: &LocalWrites,
        row: Self::RecordRow,
    ) -> impl Future<Output = Result<(), WriteFailure>> + Send;

    /// Writes one record, if what was read has not changed.
    fn write_record(
        connection: &mut Self::Connection,
        target: &Self::Target,
        seen: &Self::Seen,
        row: Self::RecordRow,
    ) -> impl Future<Output = Result<(), WriteFailure>> + Send;

    /// Commits. An answer leaves sqlx without an open transaction; until then its depth does not change.
    fn commit(connection: &mut Self::Connection) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// The server's timeline, if an acknowledged commit may still be missing on a standby. The store then has to
    /// confirm it on that timeline.
    fn unconfirmed_timeline(seen: &Self::Seen) -> Option<&str> {
        let _ = seen;
        None
    }

    /// Whether this error of a commit proves that nothing was committed.
    fn is_rolled_back(error: &sqlx::Error) -> bool;

    /// Settles a commit without an answer. `write_result` judges its record: `location` is the
    /// command's IDs, and the one that the record is stored under.
    fn settle(
        target: &Self::Target,
        seen: &Self::Seen,
        timeouts: &DatabaseTimeouts,
        location: (Ids, CommandId),
        write_result: impl Fn(Found<'_>) -> WriteResult + Send + Sync,
    ) -> impl Future<Output = CommitStatus> + Send;

    /// Called before sqlx rolls back, so that it succeeds even if the database has ended the transaction
    /// itself.
    fn before_rollback(connection: &mut Self::Connection);

    /// Ends whatever transaction is open although sqlx knows of none: it has rolled the joined one back after a
    /// failed or dropped nested `begin`, and the work may have begun another one by hand.
    fn end_unknown(connection: &mut Self::Connection)
    -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Called before sqlx rolls back on a connection whose commit has no answer. Does not wait. The next user
    /// of a pool never gets a connection in the middle of that commit: the connection becomes unusable, or it
    /// finishes the commit first.
    fn leave_commit(connection: &mut Self::Connection);

    /// Closes such a connection at once, if that is possible. `false`: [leave](Self::leave_commit) it.
    fn close(
        connection: &mut Self::Connection,
        target: &Self::Target,
        timeouts: &DatabaseTimeouts,
    ) -> impl Future<Output = bool> + Send;
}

/// Why nothing was written. The transaction must be rolled back.
#[derive(Debug)]
pub enum WriteFailure {
    /// The stored entry is not the expected one any more.
    Conflict,
    /// The transaction is not the one in which the command was looked up.
    Left,
    /// The database refused it.
    Failed(Error),
}

/// What is known about a commit without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitStatus {
    /// It happened.
    Committed,
    /// It did not happen, and will not.
    RolledBack,
    /// Its result is unknown, so far or permanently.
    Unknown,
}

/// Starts `future` and drops it: data that it sends immediately is sent.
pub(crate) fn poll_once(future: impl Future) {
    let _ = pin!(future).poll(&mut Context::from_waker(Waker::noop()));
}
