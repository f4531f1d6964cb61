//! PostgreSQL's operations for manual commands.

use super::database::Database;
use super::look::{Seen, look, restore_idle};
use super::settle::Doubt;
use super::write::{RecordWrite, server_error, write, write_record};
use crate::caller_tx::{CommitStatus, Dialect, Ids, WriteFailure, poll_once};
use crate::error::Error;
use semel::local::{DatabaseTimeouts, LocalLook, LocalWrites};
use semel_core::id::CommandId;
use semel_core::machine::{Found, Write, WriteResult};
use semel_core::store;
use semel_sql::postgres::transaction::ServerError;
use sqlx::{Connection as _, PgConnection, Postgres};
use sqlx_core::transaction::TransactionManager as _;
use std::time::Duration;

type Transactions = <Postgres as sqlx::Database>::TransactionManager;

/// How long to wait for a connection that replaces another one.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(2);

impl Dialect for Postgres {
    type Target = Database;
    type Seen = Seen;
    type RecordRow = RecordWrite;

    async fn look(
        connection: &mut PgConnection,
        database: &Database,
        ids: Ids,
        idle_max: Duration,
        timeouts: &DatabaseTimeouts,
    ) -> Result<(LocalLook, Seen), Error> {
        look(connection, database.checked()?, ids, idle_max, timeouts).await
    }

    async fn give_back(connection: &mut PgConnection, seen: &Seen) -> Result<(), Error> {
        restore_idle(connection, seen).await
    }

    async fn mark(_: &mut PgConnection) -> Result<(), Error> {
        // A transaction has its mark from its start.
        Ok(())
    }

    async fn restart(connection: &mut PgConnection) -> Result<(), Error> {
        // At the same isolation level.
        sqlx::query("ROLLBACK AND CHAIN").execute(connection).await.map(drop).map_err(Error::Database)
    }

    fn row(id: CommandId, write: &Write) -> Result<RecordWrite, store::Error> {
        RecordWrite::of(id, write)
    }

    async fn write(
        connection: &mut PgConnection,
        database: &Database,
        seen: &Seen,
        writes: &LocalWrites,
        row: RecordWrite,
    ) -> Result<(), WriteFailure> {
        write(connection, database.checked().map_err(WriteFailure::Failed)?, seen, writes, row).await
    }

    async fn write_record(
        connection: &mut PgConnection,
        database: &Database,
        seen: &Seen,
        row: RecordWrite,
    ) -> Result<(), WriteFailure> {
        write_record(connection, database.checked().map_err(WriteFailure::Failed)?, seen, row).await
    }

    async fn commit(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        Transactions::commit(connection).await
    }

    fn unconfirmed_timeline(seen: &Seen) -> Option<&str> {
        // Only a standby has no timeline, and on a standby nothing is written.
        seen.waits_for_standby.then(|| seen.timeline.as_deref().unwrap_or_default())
    }

    fn is_rolled_back(error: &sqlx::Error) -> bool {
        !matches!(server_error(error), None | Some(ServerError::Ambiguous))
    }

    async fn settle(
        database: &Database,
        seen: &Seen,
        timeouts: &DatabaseTimeouts,
        (ids, id): (Ids, CommandId),
        write_result: impl Fn(Found<'_>) -> WriteResult + Send + Sync,
    ) -> CommitStatus {
        Doubt { timeouts, database, seen, ids, id }.settle(write_result).await
    }

    fn before_rollback(_: &mut PgConnection) {
        // The server keeps a failed transaction open until it is rolled back.
    }

    async fn end_unknown(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        // Without a transaction, the server warns.
        sqlx::query("ROLLBACK").execute(connection).await.map(drop)
    }

    fn leave_commit(connection: &mut PgConnection) {
        // Queued behind the commit, after which a savepoint is an error: the pool tests a returned
        // connection, and closes it.
        poll_once(Transactions::begin(connection, None));
    }

    async fn close(connection: &mut PgConnection, database: &Database, timeouts: &DatabaseTimeouts) -> bool {
        // sqlx closes only connections that it owns, and a transaction does not give its connection away. So
        // an ended connection takes its place.
        let options = database.pool.connect_options();
        let replacing = async {
            let mut ended = PgConnection::connect_with(&options).await.ok()?;
            let ending = sqlx::query("SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())");
            ending.execute(&mut ended).await.is_err().then_some(ended)
        };
        match timeouts.within(CLOSE_WAIT_MAX.min(timeouts.store_timeout()), replacing).await.flatten() {
            Some(ended) => {
                drop(std::mem::replace(connection, ended));
                true
            }
            None => false,
        }
    }
}
