//! What a store is like: what it can do, what is dangerous about it, whose clock it goes by.

use crate::time::Time;

/// What a kind of store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a store, not a state")]
pub struct Capabilities {
    /// Records outlive the process.
    pub durable: bool,
    /// Several nodes can work on it at once.
    pub shared: bool,
    /// It has a clock of its own, so that no node's clock judges a lease. Where it has not, a policy needs an
    /// allowance for clock skew as soon as two machines share the store.
    pub own_clock: bool,
    /// It tells waiters of changes that other nodes made.
    pub notifies: bool,
    /// The most bytes of one entry.
    pub entry_bytes_max: u64,
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

/// The clock of a store that has none of its own. Handed in, so that tests can turn it.
pub trait Clock: Send + Sync + 'static {
    /// Wall time.
    fn now(&self) -> Time;
}
