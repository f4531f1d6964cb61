//! Settles a commit whose answer was lost.
//!
//! The transaction holds the command's lock until it is over. With that lock on the same server, its result
//! is visible. Without the lock an absent record proves nothing: the commit may still arrive.

use super::borrowed::BorrowedConnection;
use super::conduct::roll_back;
use super::database::{Checked, Database, Isolation};
use super::look::{Seen, look};
use crate::caller_tx::CommitStatus;
use crate::error::Error;
use semel::local::DatabaseTimeouts;
use semel_core::id::CommandId;
use semel_core::machine::{Found, WriteResult};
use semel_core::store::Reading;
use semel_sql::postgres::transaction::TransactionStatements;
use sqlx::{Connection as _, PgConnection, Row as _};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

/// A transaction whose commit is unknown.
pub(super) struct Doubt<'a> {
    pub(super) timeouts: &'a DatabaseTimeouts,
    pub(super) database: &'a Database,
    pub(super) seen: &'a Seen,
    /// The ID whose lock the transaction has, and the other ID that is read.
    pub(super) ids: (CommandId, Option<CommandId>),
    /// The ID of its record.
    pub(super) id: CommandId,
}

impl Doubt<'_> {
    /// Settles it, within the time limit for an answer of the database. `write_result` judges the transaction's
    /// record.
    pub(super) async fn settle(
        &self,
        write_result: impl Fn(Found<'_>) -> WriteResult + Sync,
    ) -> CommitStatus {
        let asking = async {
            loop {
                match self.ask(&write_result).await {
                    Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
                    Ok(Some(known)) => return known,
                }
            }
        };
        self.timeouts.bounded(asking).await.unwrap_or(CommitStatus::Unknown)
    }

    /// `None`: its own transaction still has the lock, or the server's standby may not have it.
    async fn ask(
        &self,
        write_result: &(impl Fn(Found<'_>) -> WriteResult + Sync),
    ) -> Result<Option<CommitStatus>, Error> {
        let checked = self.database.checked()?;
        let mut connection = BorrowedConnection::from(&self.database.pool).await?;
        if !is_same_server(connection.get(), checked).await? {
            // It may have another history.
            return Ok(Some(CommitStatus::Unknown));
        }
        let begin = connection.get().begin_with(Isolation::ReadCommitted.begin());
        let mut transaction = begin.await.map_err(Error::Database)?;
        let (look, now) =
            look(&mut transaction, checked, self.ids, self.timeouts.store_timeout(), self.timeouts).await?;
        if roll_back(self.timeouts, transaction).await {
            connection.keep();
        }
        if now.timeline != self.seen.timeline {
            // It may have another history.
            return Ok(Some(CommitStatus::Unknown));
        }
        let was_applied = |found: Found<'_>| write_result(found) == WriteResult::Applied;
        let reading = if self.id == self.ids.0 { Some(&look.arbiter) } else { look.moved_to.as_ref() };
        Ok(match write_result(reading.map_or(Found::Nothing, Reading::found)) {
            // It is visible, but the server's standby may not have it.
            WriteResult::Applied if self.timeouts.has_confirmed(self.id, was_applied).await => {
                Some(CommitStatus::Committed)
            }
            WriteResult::NotApplied if look.has_lock => Some(CommitStatus::RolledBack),
            WriteResult::Applied | WriteResult::NotApplied => None,
            // For example erased since, or unreadable.
            WriteResult::Unclear => Some(CommitStatus::Unknown),
        })
    }
}

async fn is_same_server(connection: &mut PgConnection, checked: &Checked) -> Result<bool, Error> {
    let Some(known) = &checked.server else { return Ok(true) };
    let server = sqlx::query(TransactionStatements::SERVER);
    let row = server.fetch_one(connection).await.map_err(Error::Database)?;
    Ok(row.try_get::<String, _>(0).map_err(Error::Database)? == *known)
}
