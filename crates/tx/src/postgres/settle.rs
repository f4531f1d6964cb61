//! What became of a commit whose answer was lost.
//!
//! The transaction holds the command's lock until it is over. Whoever has that lock on the same server therefore sees what became of
//! it. Without the lock an absent record proves nothing: the commit may still arrive.

use super::conduct::roll_back;
use super::database::{Checked, Database, Isolation};
use super::lent::Lent;
use super::look::{Seen, look};
use crate::error::Error;
use crate::hand::Known;
use semel::local::Patience;
use semel_core::id::CommandId;
use semel_core::machine::Found;
use semel_core::store::Reading;
use semel_sql::postgres::transaction::TransactionStatements;
use sqlx::{Connection as _, PgConnection, Row as _};
use std::time::Duration;

const PAUSE: Duration = Duration::from_millis(50);

/// A transaction of which nobody knows whether it committed.
pub(super) struct Doubt<'a> {
    pub(super) patience: &'a Patience,
    pub(super) database: &'a Database,
    pub(super) seen: &'a Seen,
    /// What the transaction has the lock of, and what else is read.
    pub(super) ids: (CommandId, Option<CommandId>),
    /// Where its record would stand.
    pub(super) id: CommandId,
}

impl Doubt<'_> {
    /// Finds out, for as long as an answer of the database is waited for. `landed` recognises the transaction's record.
    pub(super) async fn settle(&self, landed: impl Fn(Found<'_>) -> bool) -> Known {
        let asking = async {
            loop {
                match self.ask(&landed).await {
                    Ok(None) | Err(_) => tokio::time::sleep(PAUSE).await,
                    Ok(Some(known)) => return known,
                }
            }
        };
        self.patience.bounded(asking).await.unwrap_or(Known::Nothing)
    }

    /// `None`: its own transaction still has the lock, or the server's standby may not have it.
    async fn ask(&self, landed: &impl Fn(Found<'_>) -> bool) -> Result<Option<Known>, Error> {
        let checked = self.database.checked()?;
        let mut connection = Lent::from(&self.database.pool).await?;
        if !is_same_server(connection.get(), checked).await? {
            // Its history may be another.
            return Ok(Some(Known::Nothing));
        }
        let begin = connection.get().begin_with(Isolation::ReadCommitted.begin());
        let mut transaction = begin.await.map_err(Error::Database)?;
        let (look, now) = look(&mut transaction, checked, self.ids, self.patience).await?;
        if roll_back(self.patience, transaction).await {
            connection.keep();
        }
        if now.timeline != self.seen.timeline {
            // Its history may be another.
            return Ok(Some(Known::Nothing));
        }
        let reading = if self.id == self.ids.0 { Some(&look.arbiter) } else { look.moved_to.as_ref() };
        Ok(match reading.map_or(Found::Nothing, Reading::found) {
            // Seen, it may still be unknown to the server's standby.
            found if landed(found) && self.patience.has_confirmed(self.id).await => Some(Known::Committed),
            found if landed(found) => None,
            Found::Unreadable => Some(Known::Nothing),
            _ if look.has_lock => Some(Known::RolledBack),
            _ => None,
        })
    }
}

async fn is_same_server(connection: &mut PgConnection, checked: &Checked) -> Result<bool, Error> {
    let Some(known) = &checked.server else { return Ok(true) };
    let server = sqlx::query(TransactionStatements::SERVER);
    let row = server.fetch_one(connection).await.map_err(Error::Database)?;
    Ok(row.try_get::<String, _>(0).map_err(Error::Database)? == *known)
}
