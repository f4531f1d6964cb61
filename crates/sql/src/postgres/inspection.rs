//! A store that is opened read-only.

use super::address::Address;
use super::hazards;
use super::reader::{self, READING, Reader};
use super::scan::Scanner;
use super::schema;
use super::slot::{Slot, owned};
use super::store::capabilities;
use super::time::ServerTime;
use crate::columns::Row;
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Entry, Record, StateName};
use semel_core::store::{
    Capabilities, Census, Change, Count, Counted, Cursor, Error, Filter, Hazard, InboxCensus, Inspection,
    Item, Kind, Page, Pending, Reading, SchemaVersion, Setting, SideRow, SideTable, Store, StoreSize, Tally,
    Written,
};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::types::Type;
use uuid::Uuid;

/// How many rows are verified with one statement.
const VERIFIED_TOGETHER: i64 = 200;
/// How many findings a verification reports.
const FINDINGS_MAX: usize = 100;

/// A store on a server that is only read; a standby is sufficient. Nodes may have it open, and write.
pub(super) struct Inspected {
    name: String,
    address: Arc<Address>,
    reader: Reader,
    scanner: Scanner,
    size: StoreSize,
}

impl Inspected {
    pub(super) async fn open(text: &str, address: Address) -> Result<Self, Error> {
        let address = Arc::new(address.for_reading());
        let slot = Arc::new(Slot::new(&address));
        let time = ServerTime::default();
        let schema = address.schema.clone();
        let size = size(&slot, &schema).await?;
        Ok(Self {
            name: format!("postgres:{text}"),
            reader: Reader::new(vec![Slot::new(&address)], &schema, time.clone(), true),
            scanner: Scanner { slot, schema, time, any_server: true },
            address,
            size,
        })
    }
}

/// The size of the tables with everything that belongs to them, such as indexes.
pub(super) async fn size(slot: &Slot, schema: &str) -> Result<StoreSize, Error> {
    let sql = "SELECT sum(pg_catalog.pg_total_relation_size(c.oid))::int8 FROM pg_catalog.pg_class c \
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
               WHERE n.nspname = $1 AND c.relname IN ('meta', 'records', 'settings')";
    let rows = slot
        .read(sql, vec![owned(schema.to_owned(), Type::TEXT)])
        .await
        .map_err(|fault| fault.error(READING))?;
    let bytes: Option<i64> = rows.first().and_then(|row| row.get(0));
    Ok(StoreSize { data_bytes: bytes.and_then(|bytes| u64::try_from(bytes).ok()), log_bytes: None })
}

fn refused<'a, T>() -> Pending<'a, T> {
    Box::pin(async { Err(Error::new(Kind::ReadOnly, "writing to a store that was opened for reading only")) })
}

impl Store for Inspected {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(async move {
            let connection = hazards::Connection {
                slot: &self.scanner.slot,
                schema: &self.scanner.schema,
                may_be_in_the_clear: self.address.may_be_in_the_clear(),
                lacks_notifications: false,
            };
            hazards::find(&connection).await
        })
    }

    fn write<'a>(&'a self, _: CommandId, _: Change<&'a Record>) -> Pending<'a, Written> {
        refused()
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(self.reader.get(id))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(self.reader.find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.scanner.page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.scanner.due(after, limit))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.scanner.markers(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(self.scanner.count(what, at_most))
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        Box::pin(self.scanner.tally(state, after, limit))
    }

    fn census(&self) -> Pending<'_, Census> {
        Box::pin(self.scanner.census())
    }

    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        Box::pin(async move { self.scanner.inboxes(window).await.map(Some) })
    }

    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        Box::pin(async move { self.scanner.side_rows(table, after, limit).await.map(Some) })
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        Box::pin(reader::settings(&self.scanner.slot, &self.scanner.schema, true))
    }

    fn set<'a>(&'a self, _: &'a str, _: Option<&'a [u8]>, _: Option<&'a [u8]>) -> Pending<'a, Setting> {
        refused()
    }
}

impl Inspection for Inspected {
    fn schema(&self) -> Pending<'_, SchemaVersion> {
        Box::pin(schema::of(&self.scanner.slot, &self.scanner.schema))
    }

    fn verify(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async move {
            let differences = schema::tables::differences(&self.scanner.slot, &self.scanner.schema).await?;
            let describe = |difference| format!("changed by hand: {difference}");
            let (mut findings, mut after) =
                (differences.into_iter().map(describe).collect::<Vec<_>>(), i64::MIN);
            loop {
                let last = match self.verify_some(after, &mut findings).await {
                    Ok(Some(last)) => last,
                    Ok(None) => break,
                    // A changed column may be why the rows cannot be read.
                    Err(error) if !findings.is_empty() => {
                        findings.push(error.to_string());
                        break;
                    }
                    Err(error) => return Err(error),
                };
                after = last;
                if findings.len() >= FINDINGS_MAX {
                    findings.push("there may be more".to_owned());
                    break;
                }
            }
            Ok(findings)
        })
    }

    fn is_replica(&self) -> Pending<'_, bool> {
        Box::pin(async move {
            let sql = "SELECT pg_catalog.pg_is_in_recovery()";
            let rows = self.scanner.slot.read(sql, Vec::new()).await.map_err(|fault| fault.error(READING))?;
            let is_standby = rows.first().map(|row| row.try_get(0)).transpose();
            is_standby
                .map(|is_standby| is_standby.unwrap_or(true))
                .map_err(|error| reader::unreadable(&error))
        })
    }

    fn size(&self) -> StoreSize {
        self.size
    }
}

impl Inspected {
    /// Compares the next rows with their entries. `None` at the end.
    async fn verify_some(&self, after: i64, findings: &mut Vec<String>) -> Result<Option<i64>, Error> {
        let sql = format!(
            "SELECT seq, operation_id, command_id, version, token, state, due_at, digest = \
             pg_catalog.substring(pg_catalog.sha256(entry), 1, 8), entry FROM {}.records WHERE seq > $1 ORDER BY seq \
             LIMIT {VERIFIED_TOGETHER}",
            self.scanner.schema
        );
        let rows = self
            .scanner
            .slot
            .read(&sql, vec![owned(after, Type::INT8)])
            .await
            .map_err(|fault| fault.error(READING))?;
        let mut last = None;
        for row in &rows {
            let unreadable = |error: tokio_postgres::Error| reader::unreadable(&error);
            last = Some(row.try_get(0).map_err(unreadable)?);
            let operation_id: Uuid = row.try_get(1).map_err(unreadable)?;
            let mut find = |what: &str| findings.push(format!("record {operation_id}: {what}"));
            let id: &[u8] = row.try_get(2).map_err(unreadable)?;
            let id: Option<[u8; 32]> = id.try_into().ok();
            if id.map(|id| *OperationId::of(&CommandId::from_bytes(id)).as_bytes())
                != Some(*operation_id.as_bytes())
            {
                find("its operation id does not follow from its command id");
            }
            if !row.try_get::<_, Option<bool>>(7).map_err(unreadable)?.unwrap_or(false) {
                find("its entry was changed without its digest");
            }
            let entry: &[u8] = row.try_get(8).map_err(unreadable)?;
            let expected = match codec::decode(&Bytes::copy_from_slice(entry)) {
                Ok(Entry::Record(record)) => Row::of(&record),
                Ok(Entry::Moved) => Row::marker(),
                Err(error) => {
                    find(&format!("its entry cannot be read: {error}"));
                    continue;
                }
            };
            let unchanged = expected.unchanged;
            let is_same = row.try_get::<_, Option<i64>>(3).map_err(unreadable)?
                == unchanged.and_then(|is| i64::try_from(is.version).ok())
                && row.try_get::<_, Uuid>(4).map_err(unreadable)?.as_u128()
                    == unchanged.map_or(0, |is| is.token.bits())
                && i64::from(row.try_get::<_, i16>(5).map_err(unreadable)?) == expected.state
                && row.try_get::<_, Option<i64>>(6).map_err(unreadable)? == expected.due_at;
            if !is_same {
                find("its columns say something else than its entry");
            }
        }
        Ok(last)
    }
}
