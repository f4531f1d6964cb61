//! Reads single entries and settings.

use super::changes::other_command;
use super::doubts::{Doubts, WITH_WARNINGS, confirmation};
use super::fault::Fault;
use super::slot::{OwnedParameter, Slot, owned};
use super::time::ServerTime;
use crate::columns::MARKER;
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::store::{Error, Item, Kind, Reading, Setting};
use semel_core::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

pub(super) const READING: &str = "reading from PostgreSQL";

/// Connections that read.
pub(super) struct Reader {
    pub(super) time: ServerTime,
    slots: Vec<Slot>,
    next: AtomicUsize,
    is_closed: AtomicBool,
    read: String,
    /// The same, answered only when the standby has the data that was read.
    read_confirmed: String,
    doubts: Arc<Doubts>,
    /// Confirms reads. Its calls wait for a standby, which other reads do not.
    confirms: Option<Arc<Slot>>,
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
        let read_confirmed = read.replacen(" FROM ", &format!(", {} FROM ", confirmation()), 1);
        let (next, is_closed, doubts) = (AtomicUsize::new(0), AtomicBool::new(false), Arc::default());
        Self { time, slots, next, is_closed, read, read_confirmed, doubts, confirms: None, any_server }
    }

    /// Reads of commands in doubt are confirmed first, on a connection of their own.
    pub(super) fn with_doubts(self, doubts: Arc<Doubts>, confirms: Arc<Slot>) -> Self {
        Self { doubts, confirms: Some(confirms), ..self }
    }

    /// The next connection that is not busy or silent, or else the next one.
    fn slot(&self) -> &Slot {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let at = |number: usize| &self.slots[next.wrapping_add(number) % self.slots.len()];
        (0..self.slots.len()).map(at).find(|slot| slot.is_ready()).unwrap_or_else(|| at(0))
    }

    /// Accepts no more reads.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
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
    async fn confirmed(&self, operation_id: Uuid) -> Result<Vec<Row>, Error> {
        let mut tries = 0;
        let slot = self.confirms.as_deref().unwrap_or_else(|| self.slot());
        loop {
            let fault = match slot.write(&self.read_confirmed, vec![owned(operation_id, Type::UUID)]).await {
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
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, READING));
        }
        let uuid = Uuid::from_bytes(*operation_id.as_bytes());
        let rows = if self.doubts.contains(operation_id) {
            self.confirmed(uuid).await?
        } else {
            proved(self.slot(), &self.read, vec![owned(uuid, Type::UUID)], self.any_server).await?
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
    parameters: Vec<OwnedParameter>,
    any_server: bool,
) -> Result<Vec<Row>, Error> {
    let rows = slot.read(sql, parameters).await.map_err(|fault| fault.error(READING))?;
    if !any_server {
        for row in &rows {
            let is_standby: bool = row.try_get(0).map_err(|error| unreadable(&error))?;
            if is_standby {
                slot.discard_current();
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
    let rows = proved(slot, &sql, Vec::new(), any_server).await?;
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
    let sql = format!("SELECT done, current, {WITH_WARNINGS} FROM {schema}.set($1, $2, $3)");
    let bytes = |value: Option<&[u8]>| owned(value.map(<[u8]>::to_vec), Type::BYTEA);
    let parameters = || vec![owned(name.to_owned(), Type::TEXT), bytes(expect), bytes(next)];
    let mut tries = 0;
    let rows = loop {
        match slot.write(&sql, parameters()).await {
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
