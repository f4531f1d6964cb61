//! What a store has to do: keep entries under ids and swap them atomically. Nothing else.
//!
//! **What lives here**: the [`Store`] trait, its answers and its [`Error`], which can say that it cannot tell.
//! **What must never**: a rule about what a record means. A store compares what a [`Change`] names and does not ask
//! why; whatever would be decided twice in two stores belongs into [`machine`](crate::machine).
//!
//! # What every store promises
//!
//! 1. **Durable before told.** A write that is answered as [`Written::Done`] survives the loss of the process, and of
//!    the machine wherever [`Store::hazards`] names no danger.
//! 2. **Linearizable.** Every answer reflects all writes that were answered before its question was put, from
//!    whichever node. No replica that lags, no cache.
//! 3. **All or nothing.** A write is applied once or not at all, and only where its condition holds at that moment.
//! 4. **Honest.** A write of which the store cannot tell is [`Kind::Ambiguous`]; any other error means that nothing was
//!    written. Hidden retries of a conditional write stay off: its second try would be refused by its first.
//! 5. **Timed.** Every answer carries the store's time, taken while it was at work on that question.
//!
//! 6. **Nothing goes by itself.** Records are removed by a [`Change`] and by nothing else. A server's own time to live may be a
//!    safety net for records that no sweeper came for, long after their end, tombstone included; never at the end of a lease
//!    or of an outcome's time. It has to be off where removed records are archived: the sweeper archives a record
//!    before it removes it, and what the server removes is in no archive.
//!
//! What stands there and cannot be read is handed out as such; it is never skipped, and never taken for absent. It stays listed,
//! due and counted as before, also after a restart: what finds an entry is kept beside its bytes.
//!
//! A store that services work on does not block the thread of whoever asks, for a disk or a network. A call that is dropped half-way
//! leaves nothing open.

mod backend;
mod change;
mod delegate;
mod error;
mod query;
mod traits;

pub use backend::{Backend, Inspection, OpenOptions, SchemaVersion, StoreSize};
pub use change::Change;
pub use delegate::Delegate;
pub use error::{Error, Kind};
pub use query::{Callers, Census, Count, Counted, Cursor, Filter, Item, OperationIds, Page, Tallied, Tally};
pub use traits::{Capabilities, Clock, ClockSource, Counting, Hazard, Order, Remnants, Severity, Sharing};

use crate::codec;
use crate::id::{CommandId, OperationId};
use crate::machine::Found;
use crate::record::{Entry, Record, StateName};
use crate::time::Time;
use bytes::Bytes;
use std::fmt;
use std::pin::Pin;

/// How many bytes of entries one page of [`Store::page`], [`Store::due`] or [`Store::markers`] holds, besides one more entry.
pub const PAGE_BYTES_MAX: usize = 16 << 20;

/// An answer on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>;

/// What stood under an id at a moment of the store's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The store's time when it was read. A record's lease is judged by the time that came with the record.
    pub now: Time,
    /// What stood there; an error where it cannot be read.
    pub entry: Option<Result<Entry, codec::Error>>,
}

impl Reading {
    /// Nothing stood there.
    pub const fn nothing(now: Time) -> Self {
        Self { now, entry: None }
    }

    /// What the machine is to make of it.
    pub fn found(&self) -> Found<'_> {
        self.entry.as_ref().map_or(Found::Nothing, codec::found)
    }

    /// The record that stood there, if it was one and can be read.
    pub fn record(&self) -> Option<&Record> {
        match self.found() {
            Found::Record(record) => Some(record),
            _ => None,
        }
    }
}

/// What came of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a write may have been refused"]
pub enum Written {
    /// It is durable.
    Done {
        /// The store's time of the write.
        now: Time,
    },
    /// Its condition did not hold and nothing was changed. This is what stands there.
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

/// A small named value that every node on the store shares: the hashing secret, the stage of its replacement. Debug output tells
/// its length and nothing of it.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "the setting may have been refused"]
pub enum Setting {
    /// It is durable.
    Done,
    /// Another value stands there (or none), and nothing was changed.
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

/// Keeps entries under ids, and swaps them atomically. See the [module](self) for what is promised.
///
/// Held as `Arc<dyn Store>`; futures are boxed, so that a user of the engine sees one type whatever the store.
pub trait Store: Send + Sync + 'static {
    /// The store's name for people, without credentials: its URL, where it was opened by one. `sqlite:semel.db`.
    fn name(&self) -> String;

    /// What this kind of store can do.
    fn capabilities(&self) -> Capabilities;

    /// What is dangerous about this store's settings right now. What cannot be looked at is reported as unverified.
    fn hazards(&self) -> Pending<'_, Vec<Hazard>>;

    /// Applies `change` where its condition holds for what stands there at that moment: where [`Change::is_met_by`] would say so.
    /// A refusal shows what stands there instead, in the same round trip where the server can.
    ///
    /// The condition may be judged by columns for version, token and state, where these are written together with the entry.
    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written>;

    /// What stands under an id.
    fn get(&self, id: CommandId) -> Pending<'_, Reading>;

    /// The record with this operation id, and the id that it stands under.
    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)>;

    /// Records for operators, in the store's [order](Capabilities::order), `limit` (one at least) at most. A page may hold fewer and still have a next one: the
    /// work that a store puts into one page is bounded, and so are its bytes ([`PAGE_BYTES_MAX`]).
    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page>;

    /// Records whose [`Record::due_at`] is not after the store's time, the longest overdue first, `limit` at most. Bounded in
    /// bytes like a [page](Self::page).
    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page>;

    /// Moved markers, `limit` at most.
    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page>;

    /// How many there are; counting stops at `at_most`.
    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted>;

    /// How many records there are in each state. A store that keeps these numbers answers with one question; without them it is
    /// one [`count`](Self::count) for each state.
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

    /// How many of the next `limit` records belong to which operation and state, in the store's own order; of one state
    /// only, where one is named. Going on from cursor to cursor counts every record that is written by nobody meanwhile. A
    /// store that can tell without reading entries should: a count must not cost what all stored answers weigh.
    ///
    /// What cannot be read is left out, unless the store knows what it is all the same.
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

    /// Every setting, by name.
    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>>;

    /// Replaces a setting where it is still `expect`; `None` means that there is none.
    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting>;

    /// Removes the bytes of entries that were replaced or removed from the store's memory and files, as far as the store can, and
    /// reports what is left. Called after a record was [erased](crate::machine::erase); bounded in time.
    fn scrub(&self) -> Pending<'_, Remnants> {
        let everywhere = "in the store's files, replicas and backups, until these are overwritten".to_owned();
        Box::pin(std::future::ready(Ok(Remnants::MayRemain(everywhere))))
    }

    /// Lets no more questions in, and ends as soon as every write that was accepted is answered and nothing is held open.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::ready(()))
    }

    /// Ends once what stands under `id` may have changed since the call, where the store can tell: a waiter reads
    /// again. `None` where it cannot; the waiter then looks from time to time.
    fn changed(&self, id: CommandId) -> Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> {
        let _ = id;
        None
    }

    /// Somebody has written under `id` past the store, in a transaction of their own that has committed: whoever waits for
    /// [a change](Self::changed) there is woken, on this node and on others, where the store can tell them.
    fn wake(&self, id: CommandId) {
        let _ = id;
    }

    /// Somebody has asked a transaction of their own, which writes under `id`, to commit, and got no answer. Where a write that is
    /// visible may still be lost, everything that the store reads under `id` from now on is proven to be durable first.
    fn doubt(&self, id: CommandId) {
        let _ = id;
    }

    /// Whether what somebody else reads under `id` may still be lost, until a [`get`](Self::get) that begins afterwards has succeeded.
    fn is_in_doubt(&self, id: CommandId) -> bool {
        let _ = id;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_neither_absent_nor_a_record() {
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
