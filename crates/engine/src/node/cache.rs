//! A cache of final outcomes, which only an operator can change, by erasing them.
//!
//! `SUCCEEDED` and `FAILED_REPLAYABLE` records, bounded by bytes, the least recently used dropped first. No other
//! states. The state machine checks fingerprint and expiry on every hit.

use semel_core::id::CommandId;
use semel_core::record::{Record, State};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a record is answered from memory. Another node may have erased it, which must take effect here within a
/// minute.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(40);

/// The overhead of an entry: its places in the two maps, which are at least half full, and its reference counts.
const PLACE_BYTES: usize =
    2 * size_of::<(CommandId, Entry)>() + 2 * size_of::<(u64, CommandId)>() + 2 * size_of::<usize>();

#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    records: HashMap<CommandId, Entry>,
    /// By last use, the oldest first.
    uses: BTreeMap<u64, CommandId>,
    tick: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    /// When it was kept, by the process's uptime.
    since: Duration,
    used: u64,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, entries: Mutex::default() }
    }

    /// Whether a record that was read or written at the uptime `since` may be answered from memory at the uptime `now`.
    pub(crate) fn may_keep(&self, since: Duration, now: Duration) -> bool {
        self.bytes_max > 0 && now < since + AGE_MAX
    }

    /// Stores a record that was read or written at the uptime `since` or later, if it cannot change before it expires and is
    /// small enough.
    pub(crate) fn keep(&self, id: CommandId, record: &Record, since: Duration) {
        if !matches!(record.state(), State::Succeeded { .. } | State::FailedReplayable { .. }) {
            return;
        }
        let bytes = PLACE_BYTES + record.memory_bytes();
        // One large outcome must not evict all small ones.
        if bytes > self.bytes_max / 8 {
            return;
        }
        // The buffer that it shares may be far larger.
        let record = Arc::new(record.detached());
        let mut entries = self.entries();
        entries.drop_one(id);
        while entries.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = entries.uses.first_key_value() else { break };
            let oldest = *oldest;
            entries.drop_one(oldest);
        }
        entries.tick += 1;
        let used = entries.tick;
        entries.uses.insert(used, id);
        entries.bytes += bytes;
        entries.records.insert(id, Entry { record, since, used, bytes });
    }

    /// The record, unless it was stored too long before the uptime `now`.
    pub(crate) fn get(&self, id: CommandId, now: Duration) -> Option<Arc<Record>> {
        let mut entries = self.entries();
        let since = entries.records.get(&id)?.since;
        if !self.may_keep(since, now) {
            entries.drop_one(id);
            return None;
        }
        entries.tick += 1;
        let tick = entries.tick;
        let held = entries.records.get_mut(&id)?;
        let before = std::mem::replace(&mut held.used, tick);
        let record = Arc::clone(&held.record);
        entries.uses.remove(&before);
        entries.uses.insert(tick, id);
        Some(record)
    }

    /// Removes a record that has expired or was erased.
    pub(crate) fn forget(&self, id: CommandId) {
        self.entries().drop_one(id);
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Entries {
    fn drop_one(&mut self, id: CommandId) {
        if let Some(held) = self.records.remove(&id) {
            self.uses.remove(&held.used);
            self.bytes -= held.bytes;
        }
    }
}
