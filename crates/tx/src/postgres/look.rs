//! Tries the command's lock and reads its record, in one round trip.

use super::database::Checked;
use super::timed_out;
use super::write::failed;
use crate::error::Error;
use semel::local::{DatabaseTimeouts, LocalLook};
use semel_core::id::CommandId;
use semel_core::store::{self, Kind};
use semel_sql::postgres::transaction::{TransactionStatements, lock_number, operation_uuid, reading};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use std::sync::Arc;
use std::time::Duration;

const LOOKING: &str = "looking for a command in the application's transaction";

/// What was read about the transaction itself.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Distinguishes this transaction from the next one of its session.
    pub(super) mark: i64,
    /// The server's timeline: another one means another history.
    pub(super) timeline: Option<String>,
    /// The server's process, in which a statement may still run.
    pub(super) process: i32,
    /// The transaction's own idle limit, if it was replaced.
    pub(super) idle_before: Option<String>,
    /// Commits wait for a standby, unless somebody cancels that.
    pub(super) waits_for_standby: bool,
}

/// Tries the lock of the first ID and reads the entries of both. The lock ends with the transaction, which the
/// server rolls back if its client sends nothing for `idle_max`.
pub(super) async fn look(
    connection: &mut PgConnection,
    checked: &Checked,
    (arbiter, moved_to): (CommandId, Option<CommandId>),
    idle_max: Duration,
    timeouts: &DatabaseTimeouts,
) -> Result<(LocalLook, Seen), Error> {
    let asked = timeouts.uptime();
    let query = sqlx::query(AssertSqlSafe(Arc::clone(&checked.statements.look)))
        .bind(lock_number(&arbiter))
        .bind(operation_uuid(&arbiter))
        .bind(moved_to.as_ref().map(operation_uuid))
        .bind(i32::try_from(idle_max.as_millis()).unwrap_or(i32::MAX).max(1));
    let answered = timeouts.bounded(query.fetch_one(connection)).await;
    let row = answered.ok_or_else(timed_out)?.map_err(failed)?;
    if row.try_get::<bool, _>(1).map_err(Error::Database)? {
        let cause = "the server that answered is a standby, which may lag behind";
        return Err(Error::Store(store::Error::new(Kind::ReadOnly, LOOKING).because(cause)));
    }
    let read = |id, at: usize| -> Result<_, Error> {
        let at_ms = column(&row, 2)?;
        reading(id, at_ms, column(&row, at)?, column(&row, at + 1)?).map_err(Error::Store)
    };
    let look = LocalLook {
        has_lock: column(&row, 0)?,
        arbiter: read(&arbiter, 3)?,
        moved_to: moved_to.as_ref().map(|id| read(id, 5)).transpose()?,
        asked,
    };
    let seen = Seen {
        mark: column(&row, 7)?,
        timeline: column(&row, 8)?,
        process: column(&row, 9)?,
        idle_before: column(&row, 10)?,
        waits_for_standby: column(&row, 11)?,
    };
    Ok((look, seen))
}

/// Gives the transaction its own idle limit back.
pub(super) async fn restore_idle(connection: &mut PgConnection, seen: &Seen) -> Result<(), Error> {
    let Some(before) = &seen.idle_before else { return Ok(()) };
    let restoring = sqlx::query(TransactionStatements::RESTORE_IDLE).bind(before.clone());
    restoring.execute(connection).await.map(drop).map_err(failed)
}

fn column<'r, T>(row: &'r PgRow, at: usize) -> Result<T, Error>
where
    T: sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
{
    row.try_get(at).map_err(Error::Database)
}
