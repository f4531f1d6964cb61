//! SQLite's operations for manual commands.

use super::check::{is_marked, mark};
use super::rows::{Entries, RecordWrite, code, look, write, write_record};
use crate::caller_tx::{CommitStatus, Dialect, Ids, WriteFailure, poll_once};
use crate::error::Error;
use semel::local::{DatabaseTimeouts, LocalLook, LocalWrites};
use semel_core::id::CommandId;
use semel_core::machine::{Found, Write, WriteResult};
use semel_core::store::{self, Reading};
use sqlx::{Sqlite, SqliteConnection};
use sqlx_core::transaction::TransactionManager as _;
use std::time::Duration;

type Transactions = <Sqlite as sqlx::Database>::TransactionManager;

impl Dialect for Sqlite {
    type Target = ();
    type Seen = Entries;
    type RecordRow = RecordWrite;

    async fn look(
        connection: &mut SqliteConnection,
        (): &(),
        ids: Ids,
        _: Duration,
        timeouts: &DatabaseTimeouts,
    ) -> Result<(LocalLook, Entries), Error> {
        // The file's lock belongs to the process: only its end frees it.
        look(connection, ids, timeouts).await
    }

    async fn give_back(_: &mut SqliteConnection, _: &Entries) -> Result<(), Error> {
        Ok(())
    }

    async fn mark(connection: &mut SqliteConnection) -> Result<(), Error> {
        mark(connection).await
    }

    async fn restart(connection: &mut SqliteConnection) -> Result<(), Error> {
        // Refused if SQLite has rolled back by itself.
        drop(sqlx::query("ROLLBACK").execute(&mut *connection).await);
        sqlx::query("BEGIN IMMEDIATE").execute(connection).await.map(drop).map_err(Error::Database)
    }

    fn row(id: CommandId, write: &Write) -> Result<RecordWrite, store::Error> {
        RecordWrite::of(id, write)
    }

    async fn write(
        connection: &mut SqliteConnection,
        (): &(),
        seen: &Entries,
        writes: &LocalWrites,
        row: RecordWrite,
    ) -> Result<(), WriteFailure> {
        if !is_marked(connection).await {
            return Err(WriteFailure::Left);
        }
        write(connection, writes, row, seen).await.map_err(write_failure)
    }

    async fn write_record(
        connection: &mut SqliteConnection,
        (): &(),
        seen: &Entries,
        row: RecordWrite,
    ) -> Result<(), WriteFailure> {
        write_record(connection, row, seen).await.map_err(write_failure)
    }

    async fn commit(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        // Not with sqlx: if the caller stops waiting for the answer, it would leave out the next rollback,
        // which follows our BEGIN.
        sqlx::query("COMMIT").execute(&mut *connection).await?;
        Self::before_rollback(connection);
        drop(Transactions::rollback(connection).await);
        Ok(())
    }

    /// A constraint, an unavailable lock, a full disk, or no transaction any more.
    fn is_rolled_back(error: &sqlx::Error) -> bool {
        const ERROR: i32 = 1;
        const BUSY: i32 = 5;
        const FULL: i32 = 13;
        const CONSTRAINT: i32 = 19;
        let sqlx::Error::Database(error) = error else { return false };
        matches!(code(&**error) & 0xff, ERROR | BUSY | FULL | CONSTRAINT)
    }

    async fn settle(
        (): &(),
        _: &Entries,
        timeouts: &DatabaseTimeouts,
        (_, id): (Ids, CommandId),
        write_result: impl Fn(Found<'_>) -> WriteResult + Send + Sync,
    ) -> CommitStatus {
        // Its absence proves nothing: the log may have it, and a crash may restore it.
        let was_applied = |reading: Reading| write_result(reading.found()) == WriteResult::Applied;
        let was_applied = timeouts.read(id).await.is_ok_and(was_applied);
        if was_applied { CommitStatus::Committed } else { CommitStatus::Unknown }
    }

    fn before_rollback(connection: &mut SqliteConnection) {
        // SQLite rolls a transaction back by itself on some errors. sqlx would then fail to roll it back, and
        // continue to count it as open. So begin one again; if one is still open, this is refused.
        poll_once(sqlx::query("BEGIN").execute(connection));
    }

    async fn end_unknown(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        // Refused if nothing is open.
        drop(sqlx::query("ROLLBACK").execute(connection).await);
        Ok(())
    }

    fn leave_commit(connection: &mut SqliteConnection) {
        // The connection's thread handles one request after another. When it reaches this one, the commit is
        // over.
        Self::before_rollback(connection);
    }

    async fn close(_: &mut SqliteConnection, (): &(), _: &DatabaseTimeouts) -> bool {
        // Its thread waits for the disk, which cannot be interrupted.
        false
    }
}

fn write_failure(error: Error) -> WriteFailure {
    match error {
        Error::StaleSnapshot => WriteFailure::Conflict,
        error => WriteFailure::Failed(error),
    }
}
