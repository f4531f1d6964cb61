//! What operators, sweepers and quotas ask of a store beyond single ids.

use crate::codec;
use crate::id::{CallerHash, CommandId, KeyHash};
use crate::record::{Entry, Record, StateName};
use crate::time::Time;
use bytes::Bytes;
use std::collections::BTreeMap;

/// Which records an operator wants to see. What is left out does not matter; everything named must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<StateName>,
    /// Of this operation.
    pub operation: Option<String>,
    /// Of this caller.
    pub caller: Option<CallerHash>,
    /// With this key.
    pub key: Option<KeyHash>,
    /// Last written at this moment or later.
    pub updated_from: Option<Time>,
    /// Last written before this moment.
    pub updated_before: Option<Time>,
}

impl Filter {
    /// Whether `record` is wanted. What every store's query means.
    pub fn wants(&self, record: &Record) -> bool {
        fn same<T: PartialEq>(wanted: Option<&T>, is: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == is)
        }
        same(self.state.as_ref(), &record.state_name())
            && self.operation.as_ref().is_none_or(|operation| **operation == **record.operation())
            && same(self.caller.as_ref(), &record.caller_hash())
            && same(self.key.as_ref(), &record.key_hash())
            && self.updated_from.is_none_or(|from| record.updated_at() >= from)
            && self.updated_before.is_none_or(|before| record.updated_at() < before)
    }
}

/// Where a page ended, in a form that only the store that made it understands. May be shown to a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor(Bytes);

impl Cursor {
    /// A cursor made of whatever the store needs to go on.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// What the store put in.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// The id that it stands under.
    pub id: CommandId,
    /// What stands there; an error where it cannot be read.
    pub entry: Result<Entry, codec::Error>,
}

impl Item {
    /// The record, if it is one and can be read.
    pub fn record(&self) -> Option<&Record> {
        match &self.entry {
            Ok(Entry::Record(record)) => Some(record),
            _ => None,
        }
    }
}

/// Some entries, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The store's time.
    pub now: Time,
    /// The entries.
    pub items: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

/// What is to be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Every record, tombstones included; no markers.
    Records,
    /// The records of one caller.
    Caller(CallerHash),
    /// The records in one state.
    State(StateName),
    /// Moved markers.
    Markers,
}

/// How many there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The store's time.
    pub now: Time,
    /// How many, up to the limit that was asked for.
    pub count: u64,
}

/// How many records belong to an operation and are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tallied {
    /// The operation, as its records name it.
    pub operation: String,
    /// The state.
    pub state: StateName,
    /// How many.
    pub count: u64,
}

/// Some records, counted by operation and state, and where to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The store's time.
    pub now: Time,
    /// Each operation and state that was met, once.
    pub counts: Vec<Tallied>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<Cursor>,
}

impl Tally {
    /// What a page comes to.
    pub fn of(page: &Page) -> Self {
        let mut counts: BTreeMap<(&str, &str), Tallied> = BTreeMap::new();
        for record in page.items.iter().filter_map(Item::record) {
            let (operation, state) = (&**record.operation(), record.state_name());
            let fresh = || Tallied { operation: operation.to_owned(), state, count: 0 };
            counts.entry((operation, state.as_str())).or_insert_with(fresh).count += 1;
        }
        Self { now: page.now, counts: counts.into_values().collect(), next: page.next.clone() }
    }
}
