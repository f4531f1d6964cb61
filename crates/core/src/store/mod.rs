//! What a store has to do: keep entries by ID and swap them atomically. Nothing else.
//!
//! The [`Store`] trait, its answers and its [`Error`], which can be ambiguous. A store knows no rule about what a
//! record means: it only compares what a [`Change`] expects. A decision that two stores would have to make belongs in
//! [`machine`](crate::machine).
//!
//! # What every store promises
//!
//! 1. **Durable before acknowledged.** A write that is answered with [`Written::Done`] survives a crash of the
//!    process, and a crash of the machine if [`Store::hazards`] reports no danger.
//! 2. **Linearizable.** Every answer reflects all writes that any node saw acknowledged before the call. No lagging
//!    replica, no cache.
//! 3. **All or nothing.** A write is applied once or not at all, and only if its condition holds at that moment.
//! 4. **Honest.** If the store cannot know whether a write was applied, the error is [`Kind::Ambiguous`]. Any other
//!    error means that nothing was written. A store does not retry a conditional write by itself: the first try would
//!    make the second one fail.
//! 5. **Timed.** Every answer carries the store's time, read during that call.
//!
//! 6. **No expiry of its own.** Only a [`Change`] removes a record. A server's own expiry is not used, not even as a
//!    safety net: a server whose clock is wrong would remove an outcome early, and its command would run again.
//!
//! An unreadable entry is returned as unreadable. It is never skipped and never treated as absent. It stays listed,
//! due and counted as before, also after a restart, because indexes do not depend on its bytes.
//!
//! A store does not block the calling thread for disk or network I/O. A call that is dropped halfway leaves nothing
//! open.

mod backend;
mod change;
mod delegate;
mod error;
mod inbox;
mod query;
mod side;
mod traits;

pub use backend::{
    AcceptedLoss, AddressError, Backend, Inspection, OpenOptions, SECRET_LOST_SETTING, SECRET_SETTING,
    SchemaVersion, StoreSize,
};
pub use change::Change;
pub use delegate::Delegate;
pub use error::{Error, Kind};
pub use inbox::{INBOX_WINDOW, INBOXES_MAX, InboxCensus, InboxMarks};
pub use query::{Callers, Census, Count, Counted, Cursor, Filter, Item, OperationIds, Page, Tallied, Tally};
pub use side::{SIDE_TABLES, SideColumn, SideRow, SideTable};
pub use traits::{
    Capabilities, Clock, ClockSource, Counting, Hazard, Order, RemainingCopies, Severity, Sharing,
};

use crate::codec;
use crate::id::{CommandId, OperationId};
use crate::machine::Found;
use crate::record::{Entry, Record, StateName};
use crate::time::Time;
use bytes::Bytes;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The most bytes of entries on one page of [`Store::page`], [`Store::due`] or [`Store::markers`], plus one more
/// entry.
pub const PAGE_BYTES_MAX: usize = 16 << 20;

/// The future of a store's answer.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// The entry under an ID at a moment of the store's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The store's time when it was read. A record's lease is judged by the time that came with the record.
    pub now: Time,
    /// The entry, if there was one; an error if it cannot be read.
    pub entry: Option<Result<Entry, codec::Error>>,
}

impl Reading {
    /// No entry.
    pub const fn nothing(now: Time) -> Self {
        Self { now, entry: None }
    }

    /// The input for the state machine.
    pub fn found(&self) -> Found<'_> {
        self.entry.as_ref().map_or(Found::Nothing, codec::found)
    }

    /// The record, if the entry is one and can be read.
    pub fn record(&self) -> Option<&Record> {
        match self.found() {
            Found::Record(record) => Some(record),
            _ => None,
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a write may have been refused"]
pub enum Written {
    /// It is durable.
    Done {
        /// The store's time of the write.
        now: Time,
    },
    /// Its condition did not hold, and nothing was changed. Contains the stored entry.
    Refused(Reading),
}

impl Written {
    /// The store's time of the answer.
    pub fn now(&self) -> Time {
        match self {
            Self::Done { now } => *now,
            Self::Refused(reading) => reading.now,
        }
    }
}

/// A small named value that every node on the store shares: the hashing secret, the stage of its replacement. Debug
/// output shows only its length.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "the setting may have been refused"]
pub enum Setting {
    /// It is durable.
    Done,
    /// The setting has another value, or none. Nothing was changed.
    Refused(Option<Bytes>),
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("Done"),
            Self::Refused(None) => f.write_str("Refused(None)"),
            Self::Refused(Some(value)) => write!(f, "Refused({} bytes)", value.len()),
        }
    }
}

/// Keeps entries by ID and swaps them atomically. The [module](self) lists the promises.
///
/// Held as `Arc<dyn Store>`; futures are boxed, so users of the engine see one type for all stores.
pub trait Store: Send + Sync + 'static {
    /// The store's name for people, without credentials: its URL if it was opened by one, such as `sqlite:semel.db`.
    fn name(&self) -> String;

    /// What this kind of store can do.
    fn capabilities(&self) -> Capabilities;

    /// Current settings of the store that weaken a promise. A setting that cannot be checked is reported as
    /// unverified.
    fn hazards(&self) -> Pending<'_, Vec<Hazard>>;

    /// Checks every part of the store, as far as it can lose one unnoticed. Fails with
    /// [`DataLost`](Kind::DataLost) if acknowledged records are gone. Nodes call it every few seconds.
    fn check(&self) -> Pending<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Applies `change` if its condition holds for the stored entry at that moment, as defined by
    /// [`Change::is_met_by`]. A refusal contains the stored entry, in the same round trip if the server can do that.
    ///
    /// A store may check the condition against columns for version, token and state that it writes together with the
    /// entry.
    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written>;

    /// The entry under an ID.
    fn get(&self, id: CommandId) -> Pending<'_, Reading>;

    /// The record with this operation ID, and its command ID.
    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)>;

    /// Records for operators, in the store's [order](Capabilities::order), at most `limit` (which is at least 1). A
    /// page may have fewer records and still have a next page: the work for one page is bounded, and so are its bytes
    /// ([`PAGE_BYTES_MAX`]).
    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page>;

    /// Records whose [`Record::due_at`] is not after the store's time, the longest overdue first, at most `limit`.
    /// Bounded in bytes like a [page](Self::page).
    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page>;

    /// Moved markers, at most `limit`.
    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page>;

    /// How many there are; counting stops at `at_most`.
    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted>;

    /// How many records there are in each state. The default makes one [`count`](Self::count) per state; a store that
    /// maintains these numbers overrides it.
    fn census(&self) -> Pending<'_, Census> {
        Box::pin(async move {
            let mut census = Census::empty(Time::default());
            for state in StateName::ALL {
                let counted = self.count(Count::State(state), u64::MAX).await?;
                census.now = census.now.max(counted.now);
                census.add(state, counted.count);
            }
            Ok(census)
        })
    }

    /// Counts the next `limit` records by operation and state, in the store's own order; only one state, if one is
    /// given. Following the cursors counts every record that is not written meanwhile. A store should not read whole
    /// entries for this: counting must not load all stored answers.
    ///
    /// Unreadable entries are left out, unless the store knows their operation and state from elsewhere.
    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        Box::pin(async move {
            let filter = Filter { state, ..Filter::default() };
            Ok(Tally::of(&self.page(&filter, after, limit).await?))
        })
    }

    /// What the inboxes of applications in the store's database contain; a mark is overdue if it is older than
    /// `window`. `None` if this kind of store has no inboxes. Reads every mark, which takes seconds for millions of
    /// them.
    fn inboxes(&self, window: Duration) -> Pending<'_, Option<InboxCensus>> {
        let _ = window;
        Box::pin(std::future::ready(Ok(None)))
    }

    /// The next rows of one of the [tables](SIDE_TABLES) that applications use beside the records, after the row
    /// `after` in the order of this store. Empty at the end; `None` if this kind of store has no such tables.
    fn side_rows<'a>(
        &'a self,
        table: &'static SideTable,
        after: Option<&'a SideRow>,
        limit: usize,
    ) -> Pending<'a, Option<Vec<SideRow>>> {
        let _ = (table, after, limit);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Adds the rows whose keys the table does not have. Returns how many of `rows` it then has unchanged: fewer than
    /// all if it had other rows with their keys. Can be repeated.
    fn add_side_rows(&self, table: &'static SideTable, rows: Vec<SideRow>) -> Pending<'_, u64> {
        let _ = (table, rows);
        let cause = "this kind of store has no tables for applications";
        Box::pin(std::future::ready(Err(Error::new(Kind::Unfit, "adding rows to a table").because(cause))))
    }

    /// How much space the store uses now; nothing where the store cannot tell. A cheap question.
    fn usage(&self) -> Pending<'_, StoreSize> {
        Box::pin(std::future::ready(Ok(StoreSize::default())))
    }

    /// Every setting, by name.
    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>>;

    /// Replaces a setting if its value is still `expect`; `None` means that there is no such setting.
    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting>;

    /// Removes the bytes of replaced and removed entries from the store's memory and files, as far as the store can,
    /// and reports what is left. Called after a record was [erased](crate::machine::erase); bounded in time.
    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        let everywhere = "in the store's files, replicas and backups, until these are overwritten".to_owned();
        Box::pin(std::future::ready(Ok(RemainingCopies::MayRemain(everywhere))))
    }

    /// Accepts no more calls, and completes as soon as every accepted write is answered and nothing is open.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Completes as soon as the entry under `id` may have changed since the call, so that a waiter reads again.
    /// `None` if the store cannot notify; the waiter then polls.
    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        let _ = id;
        None
    }

    /// Reports that another transaction has written under `id` and committed. Wakes everyone who waits for [a
    /// change](Self::changed) there, on this node and, if the store can, on others.
    fn wake(&self, id: CommandId) {
        let _ = id;
    }

    /// Makes sure that what other transactions committed in the store's database before this call is as durable as
    /// the store's own writes. `timeline` is what the database called its history when they did: if it was failed over
    /// since, they may be lost, and this fails. For databases that acknowledge a commit although its wait for a
    /// standby was cancelled; the default does nothing.
    fn confirm<'a>(&'a self, timeline: &'a str) -> Pending<'a, ()> {
        let _ = timeline;
        Box::pin(std::future::ready(Ok(())))
    }

    /// Reports that the commit of another transaction that writes under `id` got no answer. If a visible write may
    /// still be lost, every later read under `id` first makes sure that what it read is durable.
    fn doubt(&self, id: CommandId) {
        let _ = id;
    }

    /// Whether an entry that others read under `id` may still be lost. True until a later [`get`](Self::get) has
    /// succeeded.
    fn is_in_doubt(&self, id: CommandId) -> bool {
        let _ = id;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreadable_entry_is_neither_absent_nor_a_record() {
        let now = Time::from_millis(7);
        let damaged = codec::Error::Damaged { at: 0, what: "for the test" };
        let reading = Reading { now, entry: Some(Err(damaged)) };
        assert_eq!(reading.found(), Found::Unreadable);
        assert_eq!(reading.record(), None);
        assert_eq!(Reading::nothing(now).found(), Found::Nothing);
        assert_eq!(Reading { now, entry: Some(Ok(Entry::Moved)) }.found(), Found::Moved);
        assert_eq!(Written::Refused(reading).now(), now);
        assert_eq!(Written::Done { now }.now(), now);
    }
}
