//! Entries and their indexes.
//!
//! The map, and one index for each query. Conditions are checked before a write gets here.

use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CallerHash, CommandId, OperationId};
use semel_core::record::{Record, StateName};
use semel_core::store::{Count, Cursor, Error, Item, Kind, PAGE_BYTES_MAX, Page};
use semel_core::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A position in an index.
pub(super) type Position = (u64, CommandId);

/// The indexed fields of an entry.
#[derive(Clone, Copy)]
pub(super) enum IndexKeys {
    Marker,
    Record { operation_id: OperationId, caller: CallerHash, state: StateName, due_at: Option<Time> },
}

impl IndexKeys {
    pub(super) fn of(record: &Record) -> Self {
        Self::Record {
            operation_id: record.operation_id(),
            caller: record.caller_hash(),
            state: record.state_name(),
            due_at: record.due_at(),
        }
    }
}

struct Stored {
    /// Increases with every insert, and does not change with swaps: a listing by it contains each entry once,
    /// whatever is written meanwhile.
    arrival: u64,
    place: IndexKeys,
    bytes: Bytes,
}

#[derive(Default)]
pub(super) struct Index {
    entries: BTreeMap<CommandId, Stored>,
    arrivals: u64,
    by_arrival: BTreeSet<Position>,
    by_due: BTreeSet<Position>,
    by_operation_id: BTreeSet<(OperationId, CommandId)>,
    markers: BTreeSet<Position>,
    of_caller: BTreeMap<CallerHash, u64>,
    in_state: BTreeMap<StateName, u64>,
}

impl Index {
    pub(super) fn bytes(&self, id: CommandId) -> Option<&Bytes> {
        self.entries.get(&id).map(|stored| &stored.bytes)
    }

    /// The entry under an ID from an index.
    pub(super) fn item(&self, id: CommandId) -> Item {
        Item { id, entry: codec::decode(&self.entries[&id].bytes) }
    }

    pub(super) fn put(&mut self, id: CommandId, place: IndexKeys, bytes: Bytes) {
        let arrival = if let Some(old) = self.entries.remove(&id) {
            self.unlist(id, &old);
            old.arrival
        } else {
            self.arrivals += 1;
            self.arrivals
        };
        let stored = Stored { arrival, place, bytes };
        self.list(id, &stored);
        self.entries.insert(id, stored);
    }

    pub(super) fn take(&mut self, id: CommandId) {
        if let Some(old) = self.entries.remove(&id) {
            self.unlist(id, &old);
        }
    }

    #[cfg(feature = "tamper")]
    pub(super) fn overwrite(&mut self, id: CommandId, bytes: Bytes) -> bool {
        self.entries.get_mut(&id).map(|stored| stored.bytes = bytes).is_some()
    }

    fn list(&mut self, id: CommandId, stored: &Stored) {
        match stored.place {
            IndexKeys::Marker => {
                self.markers.insert((stored.arrival, id));
            }
            IndexKeys::Record { operation_id, caller, state, due_at } => {
                self.by_arrival.insert((stored.arrival, id));
                self.by_operation_id.insert((operation_id, id));
                self.by_due.extend(due_at.map(|due_at| (due_at.as_millis(), id)));
                *self.of_caller.entry(caller).or_default() += 1;
                *self.in_state.entry(state).or_default() += 1;
            }
        }
    }

    fn unlist(&mut self, id: CommandId, stored: &Stored) {
        match stored.place {
            IndexKeys::Marker => {
                self.markers.remove(&(stored.arrival, id));
            }
            IndexKeys::Record { operation_id, caller, state, due_at } => {
                self.by_arrival.remove(&(stored.arrival, id));
                self.by_operation_id.remove(&(operation_id, id));
                if let Some(due_at) = due_at {
                    self.by_due.remove(&(due_at.as_millis(), id));
                }
                one_less(&mut self.of_caller, &caller);
                one_less(&mut self.in_state, &state);
            }
        }
    }

    pub(super) fn named(&self, operation_id: OperationId) -> Option<CommandId> {
        let first = (operation_id, CommandId::from_bytes([0; 32]));
        let (found, id) = self.by_operation_id.range(first..).next()?;
        (*found == operation_id).then_some(*id)
    }

    pub(super) fn count(&self, what: Count) -> u64 {
        match what {
            Count::Records => self.by_arrival.len() as u64,
            Count::Markers => self.markers.len() as u64,
            Count::Caller(caller) => self.of_caller.get(&caller).copied().unwrap_or(0),
            Count::State(state) => self.in_state.get(&state).copied().unwrap_or(0),
        }
    }

    /// By age, the oldest or the newest first.
    pub(super) fn by_age(
        &self,
        after: Option<Position>,
        newest_first: bool,
    ) -> impl Iterator<Item = Position> {
        let bound = after.map_or(Bound::Unbounded, Bound::Excluded);
        let (from, to) = if newest_first { (Bound::Unbounded, bound) } else { (bound, Bound::Unbounded) };
        let mut range = self.by_arrival.range((from, to)).copied();
        std::iter::from_fn(move || if newest_first { range.next_back() } else { range.next() })
    }

    pub(super) fn longest_overdue_first(
        &self,
        after: Option<Position>,
        now: Time,
    ) -> impl Iterator<Item = Position> {
        walk(&self.by_due, after).take_while(move |(due_at, _)| *due_at <= now.as_millis())
    }

    pub(super) fn markers(&self, after: Option<Position>) -> impl Iterator<Item = Position> {
        walk(&self.markers, after)
    }

    /// The first `limit` entries of an index.
    pub(super) fn chunk(&self, now: Time, walk: impl Iterator<Item = Position>, limit: usize) -> Page {
        let mut walk = walk.peekable();
        let (mut items, mut next, mut bytes) = (Vec::new(), None, 0);
        while items.len() < limit
            && bytes < PAGE_BYTES_MAX
            && let Some(position) = walk.next()
        {
            items.push(self.item(position.1));
            bytes += self.bytes(position.1).map_or(0, Bytes::len);
            next = Some(cursor(position));
        }
        Page { now, items, next: next.filter(|_| walk.peek().is_some()) }
    }
}

fn walk(index: &BTreeSet<Position>, after: Option<Position>) -> impl Iterator<Item = Position> {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    index.range((from, Bound::Unbounded)).copied()
}

fn one_less<K: Ord>(counts: &mut BTreeMap<K, u64>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}

pub(super) fn cursor((rank, id): Position) -> Cursor {
    Cursor::from_bytes([&rank.to_be_bytes()[..], id.as_bytes()].concat())
}

/// A cursor may come from a client.
pub(super) fn read_cursor(cursor: &Cursor) -> Result<Position, Error> {
    let parts = cursor.as_bytes().split_first_chunk::<8>();
    let position = parts
        .and_then(|(rank, id)| Some((u64::from_be_bytes(*rank), CommandId::from_bytes(id.try_into().ok()?))));
    position.ok_or_else(|| Error::new(Kind::Unfit, "reading a cursor that this store did not make"))
}
