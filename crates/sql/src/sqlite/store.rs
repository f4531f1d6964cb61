//! The `Store` trait on top of the threads.
//!
//! Contents: passing each call to its thread, and encoding and decoding in the calling task. Nothing here
//! blocks.

use super::reader::Reader;
use super::write::{EntryLocation, Work, WriteAnswer};
use super::{ENTRY_BYTES_MAX, Store, hazards, reader};
use crate::columns;
use bytes::Bytes;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Record, StateName};
use semel_core::store::{
    self, Capabilities, Census, Change, ClockSource, Count, Counted, Counting, Cursor, Error, Filter, Hazard,
    InboxCensus, Item, Kind, Order, Page, Pending, Reading, RemainingCopies, Setting, Sharing, SideRow,
    SideTable, StoreSize, Tally, Written,
};
use semel_core::time::Time;
use std::pin::Pin;
use std::time::Duration;

impl store::Store for Store {
    fn name(&self) -> String {
        format!("sqlite:{}", self.file.path.display())
    }

    fn capabilities(&self) -> Capabilities {
        capabilities()
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::close(self))
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        Box::pin(async move {
            self.files.check_open()?;
            // Pages are overwritten as they are freed. But that is in the log at first, and the file has the old pages until
            // the log is moved into it.
            let is_empty = self.checkpoints.empty_log().await.map_err(|_| closed())?;
            if is_empty {
                return Ok(RemainingCopies::None);
            }
            let (file, log) = (self.file.path.display(), self.file.wal());
            Ok(RemainingCopies::MayRemain(format!(
                "in {file} and in {}, because another program reads the file, or the disk failed. The bytes are overwritten a \
                 few seconds after that program has ended, or when the store is opened again",
                log.display()
            )))
        })
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(async move {
            let settings = match self.write(Work::Inspect).await {
                Ok(WriteAnswer::Settings { synchronous, journal_mode }) => Ok((synchronous, journal_mode)),
                Ok(other) => unreachable!("a look at the settings is not answered {other:?}"),
                Err(closed) if closed.kind() == Kind::Closed => return Err(closed),
                // For example, the writer has ended: check the rest anyway.
                Err(error) => Err(error),
            };
            Ok(hazards::find(&self.file, &self.files, settings, self.checkpoints.failure()))
        })
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move {
            let location = EntryLocation::of(id);
            let change = change.try_map(|record| columns::encoded(id, record, ENTRY_BYTES_MAX))?;
            match self.write(Work::Change { location, change }).await?.written() {
                Some(written) => Ok(written),
                // The current state of the entry that refused it.
                None => self.read(location).await.map(Written::Refused),
            }
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(self.read(EntryLocation::of(id)))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(async move {
            let _permit = self.read_permits.acquire().await.map_err(|_| closed())?;
            self.ask(move |reader| reader.find(operation_id)).await
        })
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        let (filter, after) = (filter.clone(), after.cloned());
        Box::pin(self.ask(move |reader| reader.page(&filter, after.as_ref(), limit)))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        let after = after.cloned();
        Box::pin(self.ask(move |reader| reader.due(after.as_ref(), limit)))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        let after = after.cloned();
        Box::pin(self.ask(move |reader| reader.markers(after.as_ref(), limit)))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(self.ask(move |reader| reader.count(what, at_most)))
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        let after = after.cloned();
        Box::pin(self.ask(move |reader| reader.tally(state, after.as_ref(), limit)))
    }

    fn census(&self) -> Pending<'_, Census> {
        Box::pin(self.ask(Reader::census))
    }

    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        // On the thread for long reads, so that no request waits for it.
        Box::pin(self.put(&self.long_questions, move |reader| reader.inboxes(window).map(Some)))
    }

    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        let after = after.cloned();
        Box::pin(self.ask(move |reader| reader.side_rows(table, after.as_ref(), limit).map(Some)))
    }

    fn add_side_rows(&self, table: &'static SideTable, rows: Vec<SideRow>) -> Pending<'_, u64> {
        Box::pin(async move {
            match self.write(Work::AddSideRows { table, rows }).await? {
                WriteAnswer::SideRows(present) => Ok(present),
                other => unreachable!("added rows are not answered {other:?}"),
            }
        })
    }

    fn usage(&self) -> Pending<'_, StoreSize> {
        Box::pin(async move {
            self.files.check_open()?;
            Ok(self.file.size())
        })
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        Box::pin(self.ask(Reader::settings))
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        Box::pin(async move {
            columns::check_size("writing a setting", next.map_or(0, <[u8]>::len), ENTRY_BYTES_MAX)?;
            let (name, expect, next) = (name.to_owned(), expect.map(Vec::from), next.map(Vec::from));
            match self.write(Work::Set { name, expect, next }).await? {
                WriteAnswer::Set(setting) => Ok(setting),
                other => unreachable!("a setting is not answered {other:?}"),
            }
        })
    }
}

impl Store {
    /// Reads one entry. Concurrent reads are limited: entries are as large as their answers, and many at once
    /// would fill the memory.
    async fn read(&self, location: EntryLocation) -> Result<Reading, Error> {
        let _permit = self.read_permits.acquire().await.map_err(|_| closed())?;
        self.ask(move |reader| reader.get(location)).await.map(reader::reading)
    }
}

fn closed() -> Error {
    Error::new(Kind::Closed, "reading from the SQLite store")
}

/// The capabilities of a file, for writing or reading.
pub(super) fn capabilities() -> Capabilities {
    Capabilities {
        durable: true,
        shared: Sharing::Machine,
        clock: ClockSource::EachMachine,
        counts: Counting::Exact,
        order: Order::OldestFirst,
        notifies: false,
        kept_in_memory: false,
        entry_bytes_max: ENTRY_BYTES_MAX,
    }
}
