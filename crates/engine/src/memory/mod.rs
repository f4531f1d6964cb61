//! A store in the memory of this process: for tests, demos and first experiments.
//!
//! The [`Store`] trait on a map behind a lock. Entries are kept as encoded bytes, as in any other store, so they go
//! through the same codec. The order of listings is the same in every run.

mod backend;
mod index;

pub use backend::{AddressNotEmpty, Backend};

use crate::SystemClock;
use bytes::Bytes;
use index::{Index, IndexKeys};
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Entry, Record};
use semel_core::store::{
    self, Capabilities, Change, Clock, ClockSource, Count, Counted, Counting, Cursor, Error, Filter, Hazard,
    Item, Kind, Order, PAGE_BYTES_MAX, Page, Pending, Reading, RemainingCopies, Setting, Severity, Sharing,
    Written,
};
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// How many entries one page reads, matching or not.
const PAGE_WORK_MAX: usize = 1_000;

/// Keeps everything in the memory of this process. Nothing survives a restart.
///
/// ```
/// use semel::core::store::Store as _;
/// use semel::memory;
///
/// let store = memory::Store::new();
/// assert!(!store.capabilities().durable);
/// ```
pub struct Store {
    clock: Arc<dyn Clock>,
    held: Mutex<State>,
}

#[derive(Default)]
struct State {
    index: Index,
    settings: BTreeMap<String, Bytes>,
}

impl Store {
    /// An empty store with the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// An empty store with `clock`.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { clock, held: Mutex::default() }
    }

    /// The lock is never held across an await. After a panic under it, the store cannot be trusted.
    fn held(&self) -> Result<MutexGuard<'_, State>, Error> {
        let unfit =
            |_| Error::new(Kind::Unfit, "opening the memory store after a panic in the middle of a write");
        self.held.lock().map_err(unfit)
    }

    /// The time is read under the lock, so that it matches the entry.
    fn reading(&self, index: &Index, id: CommandId) -> Reading {
        Reading { now: self.clock.now(), entry: index.bytes(id).map(codec::decode) }
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

/// The name only, because entries contain user data.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("memory::Store")
    }
}

/// Builds entries that no write produces, for tests.
#[cfg(feature = "tamper")]
impl Store {
    /// Replaces the bytes of the entry under `id`, like damage on a disk: the indexes are unchanged. Returns whether
    /// there was an entry.
    pub fn overwrite(&self, id: CommandId, bytes: impl Into<Bytes>) -> Result<bool, Error> {
        Ok(self.held()?.index.overwrite(id, bytes.into()))
    }
}

impl store::Store for Store {
    fn name(&self) -> String {
        "memory:".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            durable: false,
            shared: Sharing::Process,
            clock: ClockSource::EachMachine,
            counts: Counting::Exact,
            order: Order::OldestFirst,
            notifies: false,
            kept_in_memory: true,
            entry_bytes_max: u64::MAX,
        }
    }

    fn scrub(&self) -> Pending<'_, RemainingCopies> {
        Box::pin(std::future::ready(Ok(RemainingCopies::None)))
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        let hazard = Hazard {
            severity: Severity::Danger,
            code: "memory-only",
            what: "nothing survives the process: after a restart, every command is new, and a retry runs it again"
                .to_owned(),
            fix: "use a durable store such as sqlite:semel.db; use this one only for tests".to_owned(),
        };
        Box::pin(async move { Ok(vec![hazard]) })
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        Box::pin(async move {
            // Encode before taking the lock.
            let encoded =
                change.map(|record| (IndexKeys::of(record), Bytes::from(codec::encode_record(record))));
            let mut held = self.held()?;
            let reading = self.reading(&held.index, id);
            if !change.is_met_by(reading.found()) {
                return Ok(Written::Refused(reading));
            }
            match encoded {
                Change::Insert((place, bytes)) | Change::Replace(_, (place, bytes)) => {
                    held.index.put(id, place, bytes);
                }
                Change::InsertMarker => {
                    held.index.put(id, IndexKeys::Marker, codec::encode(&Entry::Moved).into());
                }
                Change::Remove(_) | Change::RemoveMarker => held.index.take(id),
            }
            Ok(Written::Done { now: reading.now })
        })
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(async move { Ok(self.reading(&self.held()?.index, id)) })
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(async move {
            let held = self.held()?;
            Ok((self.clock.now(), held.index.named(operation_id).map(|id| held.index.item(id))))
        })
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(async move {
            let after = after.map(index::read_cursor).transpose()?;
            let held = self.held()?;
            let (mut items, mut next, mut bytes) = (Vec::new(), None, 0);
            for (looked_at, (position, id)) in held.index.by_age(after, filter.newest_first).enumerate() {
                if looked_at == PAGE_WORK_MAX || items.len() == limit || bytes >= PAGE_BYTES_MAX {
                    next = next.or_else(|| after.map(index::cursor));
                    return Ok(Page { now: self.clock.now(), items, next });
                }
                let item = held.index.item(id);
                if filter.shows(&item) {
                    items.push(item);
                    bytes += held.index.bytes(id).map_or(0, Bytes::len);
                }
                next = Some(index::cursor((position, id)));
            }
            Ok(Page { now: self.clock.now(), items, next: None })
        })
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(async move {
            let after = after.map(index::read_cursor).transpose()?;
            let held = self.held()?;
            let now = self.clock.now();
            Ok(held.index.chunk(now, held.index.longest_overdue_first(after, now), limit))
        })
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(async move {
            let after = after.map(index::read_cursor).transpose()?;
            let held = self.held()?;
            Ok(held.index.chunk(self.clock.now(), held.index.markers(after), limit))
        })
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(async move {
            let count = self.held()?.index.count(what).min(at_most);
            Ok(Counted { now: self.clock.now(), count })
        })
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        Box::pin(async move {
            let held = self.held()?;
            Ok(held.settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
        })
    }

    fn set<'a>(
        &'a self,
        name: &'a str,
        expect: Option<&'a [u8]>,
        next: Option<&'a [u8]>,
    ) -> Pending<'a, Setting> {
        Box::pin(async move {
            let settings = &mut self.held()?.settings;
            let found = settings.get(name);
            if found.map(|value| &**value) != expect {
                return Ok(Setting::Refused(found.cloned()));
            }
            match next {
                Some(next) => settings.insert(name.to_owned(), Bytes::copy_from_slice(next)),
                None => settings.remove(name),
            };
            Ok(Setting::Done)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::store::Store as _;
    use std::task::{Context, Poll, Waker};

    /// The memory store never waits.
    fn now<T>(mut pending: Pending<'_, T>) -> Result<T, Error> {
        match pending.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => panic!("it waits"),
        }
    }

    #[test]
    fn a_foreign_cursor_is_refused() {
        let store = Store::new();
        for bytes in [&[][..], &[1; 8], &[1; 39], &[1; 41]] {
            let cursor = Cursor::from_bytes(bytes.to_vec());
            let asked = [
                now(store.page(&Filter::default(), Some(&cursor), 10)),
                now(store.due(Some(&cursor), 10)),
                now(store.markers(Some(&cursor), 10)),
            ];
            for answer in asked {
                assert!(answer.is_err(), "{} bytes", bytes.len());
            }
        }
    }

    #[test]
    fn a_call_does_nothing_before_it_is_polled() {
        let store = Store::new();
        let id = CommandId::from_bytes([7; 32]);
        drop(store.write(id, Change::InsertMarker));
        assert_eq!(now(store.get(id)).expect("an answer").entry, None);
    }

    #[test]
    fn debug_output_shows_no_contents() {
        assert_eq!(format!("{:?}", Store::default()), "memory::Store");
    }
}
