//! Reads single entries and settings.

use super::changes::other_command;
use super::doubts::{CONFIRMATION, Doubts};
use super::fault::Fault;
use super::session::{Parameter, Slot};
use super::time::ServerTime;
use crate::columns::MARKER;
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::store::{Error, Item, Kind, Reading, Setting};
use semel_core::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub(super) const READING: &str = "reading from PostgreSQL";
/// How many entries are read and decoded at once per connection: they are as large as their responses.
const CONCURRENT_READS_MAX: usize = 4;

/// Connections that read.
pub(super) struct Reader {
    pub(super) time: ServerTime,
    slots: Vec<Slot>,
    next: AtomicUsize,
    read_permits: Semaphore,
    read: String,
    /// The same, answered only when the standby has the data that was read.
    read_confirmed: String,
    doubts: Arc<Doubts>,
    /// A standby is sufficient: no decision depends on the answers.
    any_server: bool,
}

/// A row as stored.
struct Stored {
    id: Option<CommandId>,
    state: i64,
    entry: Bytes,
}

impl Reader {
    pub(super) fn new(slots: Vec<Slot>, schema: &str, time: ServerTime, any_server: bool) -> Self {
        let read = format!(
            "SELECT is_standby, at_ms, found_command_id, found_state, found_entry FROM {schema}.read($1)"
        );
        let read_confirmed = read.replacen(" FROM ", &format!(", {CONFIRMATION} FROM "), 1);
        let read_permits = Semaphore::new(CONCURRENT_READS_MAX * slots.len());
        let (next, doubts) = (AtomicUsize::new(0), Arc::default());
        Self { time, slots, next, read_permits, read, read_confirmed, doubts, any_server }
    }

    /// Reads of commands in doubt are confirmed first.
    pub(super) fn with_doubts(self, doubts: Arc<Doubts>) -> Self {
        Self { doubts, ..self }
    }

    fn slot(&self) -> &Slot {
        &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()]
    }

    /// Accepts no more reads.
    pub(super) fn close(&self) {
        self.read_permits.close();
    }

    pub(super) async fn get(&self, id: CommandId) -> Result<Reading, Error> {
        let (now, stored) = self.stored(OperationId::of(&id)).await?;
        match stored {
            None => Ok(Reading::nothing(now)),
            Some(stored) if stored.id == Some(id) => {
                Ok(Reading { now, entry: Some(codec::decode(&stored.entry)) })
            }
            Some(_) => Err(other_command()),
        }
    }

    pub(super) async fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), Error> {
        let (now, stored) = self.stored(operation_id).await?;
        match stored {
            None => Ok((now, None)),
            Some(stored) if stored.state == MARKER => Ok((now, None)),
            Some(Stored { id: Some(id), entry, .. }) if OperationId::of(&id) == operation_id => {
                Ok((now, Some(Item { id, entry: codec::decode(&entry) })))
            }
            Some(_) => Err(other_command()),
        }
    }

    /// Reads, then commits something that waits for the standby.
    async fn confirmed(&self, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Error> {
        let mut tries = 0;
        loop {
            let fault = match self.slot().write(&self.read_confirmed, parameters).await {
                Ok(rows) => return Ok(rows),
                Err(fault) => fault,
            };
            tries += 1;
            // A broken connection is replaced. Nothing was changed, whatever happened to the commit.
            if fault.kind != Kind::Ambiguous {
                return Err(fault.error(READING));
            }
            if tries == 2 {
                return Err(Error::new(Kind::Unavailable, READING).because(
                    "what was read of a write whose answer was lost could not be confirmed by a commit",
                ));
            }
        }
    }

    async fn stored(&self, operation_id: OperationId) -> Result<(Time, Option<Stored>), Error> {
        let _permit = self.read_permits.acquire().await.map_err(|_| Error::new(Kind::Closed, READING))?;
        let parameter = Uuid::from_bytes(*operation_id.as_bytes());
        let parameters: [Parameter<'_>; 1] = [(&parameter, Type::UUID)];
        let rows = if self.doubts.contains(operation_id) {
            self.confirmed(&parameters).await?
        } else {
            proved(self.slot(), &self.read, &parameters, self.any_server).await?
        };
        let read = || -> Result<_, tokio_postgres::Error> {
            let Some(row) = rows.first() else { return Ok(None) };
            let now = self.time.at(row.try_get(1)?);
            let Some(id) = row.try_get::<_, Option<&[u8]>>(2)? else { return Ok(Some((now, None))) };
            let id = id.try_into().ok().map(CommandId::from_bytes);
            let entry = Bytes::copy_from_slice(row.try_get(4)?);
            Ok(Some((now, Some(Stored { id, state: row.try_get::<_, i16>(3)?.into(), entry }))))
        };
        read()
            .map_err(|error| unreadable(&error))?
            .ok_or_else(|| Error::new(Kind::Unfit, READING).because("no answer"))
    }
}

/// Runs a statement whose first column says whether the server is a standby. Only the server that takes
/// writes is trusted: a standby may lack acknowledged writes.
pub(super) async fn proved(
    slot: &Slot,
    sql: &str,
    parameters: &[Parameter<'_>],
    any_server: bool,
) -> Result<Vec<Row>, Error> {
    let rows = slot.read(sql, parameters).await.map_err(|fault| fault.error(READING))?;
    if !any_server {
        for row in &rows {
            let is_standby: bool = row.try_get(0).map_err(|error| unreadable(&error))?;
            if is_standby {
                if let Ok(session) = slot.session().await {
                    slot.discard(&session).await;
                }
                let cause = "the server that answered is a standby, which may lag behind; the connection was given up";
                return Err(Error::new(Kind::ReadOnly, READING).because(cause));
            }
        }
    }
    Ok(rows)
}

/// An answer of an unexpected shape.
pub(super) fn unreadable(error: &tokio_postgres::Error) -> Error {
    Error::new(Kind::Unfit, READING).because(super::fault::chain(error))
}

pub(super) async fn settings(
    slot: &Slot,
    schema: &str,
    any_server: bool,
) -> Result<Vec<(String, Bytes)>, Error> {
    let sql = format!(
        "SELECT pg_catalog.pg_is_in_recovery(), s.name, s.value FROM (SELECT 1) AS one \
         LEFT JOIN {schema}.settings AS s ON true ORDER BY s.name"
    );
    let rows = proved(slot, &sql, &[], any_server).await?;
    let read = |row: &Row| -> Result<Option<(String, Bytes)>, tokio_postgres::Error> {
        let Some(name) = row.try_get::<_, Option<String>>(1)? else { return Ok(None) };
        Ok(Some((name, Bytes::copy_from_slice(row.try_get(2)?))))
    };
    rows.iter()
        .filter_map(|row| read(row).transpose())
        .collect::<Result<_, _>>()
        .map_err(|error| unreadable(&error))
}

/// Replaces a setting if it still has the expected value.
pub(super) async fn set(
    slot: &Arc<Slot>,
    schema: &str,
    name: &str,
    expect: Option<&[u8]>,
    next: Option<&[u8]>,
) -> Result<Setting, Error> {
    const SETTING: &str = "writing a setting to PostgreSQL";
    let sql = format!("SELECT done, current FROM {schema}.set($1, $2, $3)");
    let parameters: [Parameter<'_>; 3] = [(&name, Type::TEXT), (&expect, Type::BYTEA), (&next, Type::BYTEA)];
    let mut tries = 0;
    let rows = loop {
        match slot.write(&sql, &parameters).await {
            Ok(rows) => break rows,
            Err(fault) if fault.remedy == super::fault::Remedy::Repeat && tries < 5 => tries += 1,
            Err(fault) => return Err(fault.error(SETTING)),
        }
    };
    let unexpected = || Fault::new(Kind::Ambiguous, "the answer cannot be read").error(SETTING);
    let row = rows.first().ok_or_else(unexpected)?;
    if row.try_get::<_, bool>(0).map_err(|_| unexpected())? {
        return Ok(Setting::Done);
    }
    let found: Option<&[u8]> = row.try_get(1).map_err(|_| unexpected())?;
    Ok(Setting::Refused(found.map(Bytes::copy_from_slice)))
}
