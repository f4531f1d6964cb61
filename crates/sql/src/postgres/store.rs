//! The store's operations.

use super::doubts::Unanswered;
use super::job::{Answer, Job};
use super::writer::WRITING;
use super::{ENTRY_BYTES_MAX, Store, hazards, inspection, own_row, reader};
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
        self.name.clone()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { notifies: self.shared.waiters.is_listening(), ..capabilities() }
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        // VACUUM frees the space of dead rows, and leaves their bytes there until other rows need the space.
        let remain = format!(
            "in PostgreSQL's data files until other rows overwrite it (VACUUM FULL {}.records rewrites the table at once, and locks \
             it meanwhile), in the write-ahead log and archives of it, and on standbys until they have replayed this",
            self.scanner.schema
        );
        Box::pin(std::future::ready(Ok(RemainingCopies::MayRemain(remain))))
    }

    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(Self::close(self))
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(async move {
            self.check_open()?;
            let connection = hazards::Connection {
                slot: &self.scanner.slot,
                schema: &self.scanner.schema,
                may_be_in_the_clear: self.address.may_be_in_the_clear(),
                lacks_notifications: self.address.for_listening().is_some()
                    && !self.shared.waiters.is_listening(),
            };
            hazards::find(&connection).await
        })
    }

    fn check(&self) -> Pending<'_, ()> {
        self.ask(own_row::check(&self.scanner.slot, &self.scanner.schema))
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move {
            let encoded = change.try_map(|record| columns::encoded(id, record, ENTRY_BYTES_MAX))?;
            let (job, answer) = Job::new(id, encoded);
            let unanswered = Unanswered::of(&self.shared.doubts, OperationId::of(&id), job.sending.clone());
            self.shared.queue.push(job)?;
            // A writer that ended early: it is not known whether its statement was committed.
            let lost = |_| Error::new(Kind::Ambiguous, "waiting for a write to PostgreSQL");
            let answer = answer.await.map_err(lost)?;
            unanswered.answered();
            match answer? {
                Answer::Written(written) => Ok(written),
                Answer::RefusedByLargeEntry => self.reader.get(id).await.map(Written::Refused),
                Answer::RefusedInDoubt => {
                    let reading = self.reader.get(id).await.map_err(|error| in_doubt(error.to_string()))?;
                    if change.is_met_by(reading.found()) {
                        return Err(in_doubt("what refused it is not there any more".to_owned()));
                    }
                    Ok(Written::Refused(reading))
                }
                // A duplicate is answered although nothing can be written.
                Answer::Unsent(fault) => match self.reader.get(id).await {
                    Ok(reading) if !change.is_met_by(reading.found()) => Ok(Written::Refused(reading)),
                    _ => Err(fault.error(WRITING)),
                },
            }
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(self.reader.get(id))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(self.reader.find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(self.scanner.page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(self.scanner.due(after, limit))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        self.ask(self.scanner.markers(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        self.ask(self.scanner.count(what, at_most))
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        self.ask(self.scanner.tally(state, after, limit))
    }

    fn census(&self) -> Pending<'_, Census> {
        self.ask(self.scanner.census())
    }

    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        self.ask(async move { self.scanner.inboxes(window).await.map(Some) })
    }

    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        self.ask(async move { self.scanner.side_rows(table, after, limit).await.map(Some) })
    }

    fn add_side_rows(&self, table: &'static SideTable, rows: Vec<SideRow>) -> Pending<'_, u64> {
        self.ask(async move { self.scanner.add_side_rows(table, &rows).await })
    }

    fn usage(&self) -> Pending<'_, StoreSize> {
        self.ask(inspection::size(&self.scanner.slot, &self.scanner.schema))
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        self.ask(reader::settings(&self.scanner.slot, &self.scanner.schema, false))
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        self.ask(async move {
            columns::check_size("writing a setting", next.map_or(0, <[u8]>::len), ENTRY_BYTES_MAX)?;
            reader::set(&self.committing, &self.scanner.schema, name, expect, next).await
        })
    }

    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        self.shared.waiters.subscribe(OperationId::of(&id)).map(|changed| changed as _)
    }

    fn wake(&self, id: CommandId) {
        self.shared.waiters.changed(std::iter::once(OperationId::of(&id)));
    }

    fn confirm<'a>(&'a self, timeline: &'a str) -> Pending<'a, ()> {
        self.ask(self.confirming.confirm(timeline))
    }

    fn doubt(&self, id: CommandId) {
        self.shared.doubts.add(OperationId::of(&id));
    }

    fn is_in_doubt(&self, id: CommandId) -> bool {
        self.shared.doubts.contains(OperationId::of(&id))
    }
}

impl Store {
    fn ask<'a, T>(&'a self, asked: impl Future<Output = Result<T, Error>> + Send + 'a) -> Pending<'a, T> {
        Box::pin(async move {
            self.check_open()?;
            asked.await
        })
    }
}

/// A refusal that proves nothing: its cause may be an earlier write of the same caller.
fn in_doubt(cause: String) -> Error {
    Error::new(Kind::Ambiguous, WRITING).because(cause)
}

/// The capabilities, for writing and for reading.
pub(super) fn capabilities() -> Capabilities {
    Capabilities {
        durable: true,
        shared: Sharing::Machines,
        clock: ClockSource::One,
        counts: Counting::Approximate,
        order: Order::OldestFirst,
        notifies: false,
        kept_in_memory: false,
        entry_bytes_max: ENTRY_BYTES_MAX,
    }
}
