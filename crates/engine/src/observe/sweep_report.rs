//! What a sweep did.

use semel_core::time::Time;
use std::time::Duration;

/// The result of one sweep.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SweepReport {
    /// How many records it looked at.
    pub seen: u64,
    /// Expired leases marked.
    pub lapsed: u64,
    /// Unknown outcomes with a date in the future, corrected.
    pub redated: u64,
    /// Tombstones from before a change of time, given a later end.
    pub extended: u64,
    /// Outcomes that became tombstones, or were removed if no tombstones are kept.
    pub expired: u64,
    /// Records removed.
    pub purged: u64,
    /// Unknown outcomes that are due for a probe.
    pub to_probe: u64,
    /// Records that cannot be read. They are unchanged.
    pub unreadable: u64,
    /// How long the longest overdue record was overdue. An unknown outcome without a reconciler on this node is not
    /// counted: it waits for an operator.
    pub lag: Duration,
    /// Calls to the store that failed; their records are due again in the next round.
    pub failed: u64,
    /// The clock is not trusted enough to judge anything, and nothing was changed.
    pub stopped: bool,
    /// The store's time at the last query for due records.
    pub at: Option<Time>,
}
