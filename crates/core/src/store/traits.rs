//! A store's capabilities, hazards and clock.

use crate::time::Time;

/// What a kind of store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Records outlive the process.
    pub durable: bool,
    /// Which nodes can use it at the same time.
    pub shared: Sharing,
    /// Whose clock gives the store's time.
    pub clock: ClockSource,
    /// How exact its [counts](super::Store::count) are.
    pub counts: Counting,
    /// In which order it [lists](super::Store::page) records.
    pub order: Order,
    /// It notifies waiters of changes by other nodes.
    pub notifies: bool,
    /// Every record takes up memory until it is removed. A sweeper that is behind works faster than on a disk.
    pub kept_in_memory: bool,
    /// The most bytes of one entry.
    pub entry_bytes_max: u64,
}

impl Capabilities {
    /// Whether nodes can read different times at the same moment, so the skew has to be configured.
    pub fn clocks_can_differ(&self) -> bool {
        self.shared == Sharing::Machines && self.clock != ClockSource::One
    }
}

/// Which nodes can use a store at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One only: the store is part of a process.
    Process,
    /// Nodes on one machine.
    Machine,
    /// Nodes on any number of machines.
    Machines,
}

/// Whose clock gives a store's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockSource {
    /// One clock for all nodes: a server's.
    One,
    /// The clock of whichever machine does the work: one of several servers, or the node's own if store and node
    /// share a machine.
    EachMachine,
    /// The store has no clock. Each node reads its own.
    None,
}

/// How exact a store's counts are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counting {
    /// Exact. A cap on the number of records needs this.
    Exact,
    /// Close enough for people and metrics.
    Approximate,
    /// The store does not count. Calls are refused.
    None,
}

/// In which order a store lists records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In the order in which they were first written.
    OldestFirst,
    /// In an order of its own. Every record that is not removed meanwhile is still listed exactly once.
    Own,
}

/// What is left of replaced and removed entries after [`Store::scrub`](super::Store::scrub).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "an operator who erased a record must learn where copies remain"]
pub enum RemainingCopies {
    /// Nothing, in the store's own memory and files. Backups are not covered.
    None,
    /// Copies may remain: where and until when, as the end of a sentence, such as `in the write-ahead log until it is
    /// recycled`.
    MayRemain(String),
}

/// How bad a hazard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// It could not be checked.
    Unverified,
    /// An acknowledged outcome can be lost.
    Danger,
}

/// A setting of a store that weakens a promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hazard {
    /// How bad it is.
    pub severity: Severity,
    /// A short name to search the documentation for.
    pub code: &'static str,
    /// What is wrong, and what can happen.
    pub what: String,
    /// How to fix it.
    pub fix: String,
}

/// The clock for a store that has none of its own: the machine's ([`ClockSource::EachMachine`]), or a fake one in
/// tests.
pub trait Clock: Send + Sync + 'static {
    /// Wall time.
    fn now(&self) -> Time;
}
