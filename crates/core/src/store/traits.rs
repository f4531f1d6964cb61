//! What a store is like: what it can do, what is dangerous about it, whose clock it goes by.

use crate::time::Time;

/// What a kind of store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Records outlive the process.
    pub durable: bool,
    /// Which nodes can work on it at once.
    pub shared: Sharing,
    /// Whose clock tells the store's time.
    pub clock: ClockSource,
    /// What its [counts](super::Store::count) are worth.
    pub counts: Counting,
    /// In which order it [lists](super::Store::page) records.
    pub order: Order,
    /// It tells waiters of changes that other nodes made.
    pub notifies: bool,
    /// The most bytes of one entry.
    pub entry_bytes_max: u64,
}

impl Capabilities {
    /// Whether nodes can read different times at one moment, so that somebody has to say by how much these may differ.
    pub fn clocks_can_differ(&self) -> bool {
        self.shared == Sharing::Machines && self.clock != ClockSource::One
    }
}

/// Which nodes can work on a store at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One only: it is part of a process.
    Process,
    /// Those on one machine.
    Machine,
    /// Those on any number of machines.
    Machines,
}

/// Whose clock tells a store's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSource {
    /// One clock tells every node the time: a server's.
    One,
    /// The clock of whichever machine does the work: of a server among several, or of the node where store and node share a
    /// machine.
    EachMachine,
    /// The store has none. Each node reads its own.
    None,
}

/// What a store's counts are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// They say how many there are. A cap on the number of records needs that.
    Exact,
    /// They are near enough for people and metrics.
    Approximate,
    /// It does not count. Questions for a count are refused.
    None,
}

/// In which order a store lists records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In the order in which they were first written.
    OldestFirst,
    /// In one of its own. Every record that stays comes once all the same.
    Own,
}

/// What is left of replaced and removed entries after [`Store::scrub`](super::Store::scrub).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "somebody who erased a record should learn where copies may remain"]
pub enum Remnants {
    /// Nothing, in the store's own memory and files. Backups are nobody's but their owner's.
    None,
    /// Copies may remain: where and until when, as the end of a sentence. `in the write-ahead log until it is recycled`.
    MayRemain(String),
}

/// How bad a hazard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// It could not be looked at; it may be fine.
    Unverified,
    /// An acknowledged outcome can be lost.
    Danger,
}

/// Something about a store's settings that weakens what is promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hazard {
    /// How bad it is.
    pub severity: Severity,
    /// A short name to search the documentation for.
    pub code: &'static str,
    /// What is wrong and what can come of it.
    pub what: String,
    /// What mends it.
    pub mend: String,
}

/// The clock that a store without one of its own is handed: the machine's ([`ClockSource::EachMachine`]), or one that tests turn.
pub trait Clock: Send + Sync + 'static {
    /// Wall time.
    fn now(&self) -> Time;
}
