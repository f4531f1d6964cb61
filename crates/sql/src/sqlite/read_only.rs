//! A read-only store.
//!
//! Contents: [`ReadOnlyStore`], which answers reads and refuses every write. It never creates a file or a
//! table, and never restarts a log.

use super::Options;
use super::hazards;
use super::open::File;
use super::reader::{Reader, reading};
use super::schema;
use super::store::capabilities;
use super::write::EntryLocation;
use bytes::Bytes;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Record;
use semel_core::store::{
    Capabilities, Census, Change, Count, Counted, Cursor, Error, Filter, Hazard, InboxCensus, Inspection,
    Item, Kind, Page, Pending, Reading, SchemaVersion, Setting, SideRow, SideTable, Store, StoreSize,
    Written,
};
use semel_core::time::Time;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A store in a file that is only read. Other processes may have it open and write to it.
///
/// Every write is refused with [`Kind::ReadOnly`]. Calls block the thread: this is for tools, not for
/// services.
pub struct ReadOnlyStore {
    file: File,
    reader: Mutex<Reader>,
}

impl ReadOnlyStore {
    /// Opens the file at `path`, which must exist. It may have no tables of Semel, or those of another build:
    /// see [`schema`](Inspection::schema).
    pub fn open(path: impl Into<PathBuf>, options: Options) -> Result<Self, Error> {
        let Options { clock, readers: _, wal_bytes_max } = options;
        let file = File::existing(&path.into(), wal_bytes_max)?;
        let reader = Reader { connection: file.reader()?, clock };
        Ok(Self { file, reader: Mutex::new(reader) })
    }

    /// A read that panicked has changed nothing.
    fn reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask<'a, T: Send + 'a>(
        &'a self,
        ask: impl FnOnce(&Reader) -> Result<T, Error> + Send + 'a,
    ) -> Pending<'a, T> {
        Box::pin(async move { ask(&self.reader()) })
    }
}

fn refused<'a, T>() -> Pending<'a, T> {
    Box::pin(async { Err(Error::new(Kind::ReadOnly, "writing to a store that was opened for reading only")) })
}

impl Store for ReadOnlyStore {
    fn name(&self) -> String {
        format!("sqlite:{}", self.file.path.display())
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        self.ask(|reader| {
            let mode = reader.connection.pragma_query_value(None, "journal_mode", |row| row.get(0));
            Ok(hazards::from_outside(&self.file, mode))
        })
    }

    fn write<'a>(&'a self, _: CommandId, _: Change<&'a Record>) -> Pending<'a, Written> {
        refused()
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        self.ask(move |reader| reader.get(EntryLocation::of(id)).map(reading))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        self.ask(move |reader| reader.find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(move |reader| reader.page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(move |reader| reader.due(after, limit))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(move |reader| reader.markers(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.ask(move |reader| reader.count(what, at_most))
    }

    fn census(&self) -> Pending<'_, Census> {
        self.ask(Reader::census)
    }

    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        self.ask(move |reader| reader.inboxes(window).map(Some))
    }

    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        self.ask(move |reader| reader.side_rows(table, after, limit).map(Some))
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        self.ask(Reader::settings)
    }

    fn set<'a>(&'a self, _: &'a str, _: Option<&'a [u8]>, _: Option<&'a [u8]>) -> Pending<'a, Setting> {
        refused()
    }
}

impl Inspection for ReadOnlyStore {
    fn schema(&self) -> Pending<'_, SchemaVersion> {
        self.ask(|reader| schema::of(&reader.connection))
    }

    fn verify(&self) -> Pending<'_, Vec<String>> {
        self.ask(Reader::verify)
    }

    fn size(&self) -> StoreSize {
        self.file.size()
    }
}

impl fmt::Debug for ReadOnlyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("sqlite::ReadOnlyStore").field("path", &self.file.path).finish_non_exhaustive()
    }
}
