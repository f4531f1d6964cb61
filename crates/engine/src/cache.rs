//! Outcomes that this process has seen and that cannot change.
//!
//! What lives here: `SUCCEEDED` and `FAILED_REPLAYABLE` records, bounded by bytes, the least recently used dropped.
//! What must never: any other state, or an answer that was not judged anew: fingerprint and expiry are checked by the
//! state machine on every hit.

use semel_core::id::CommandId;
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Record, State};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

/// What a record takes besides its outcome, roughly.
const RECORD_BYTES: usize = 512;

#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    records: HashMap<CommandId, Held>,
    /// When each was last used, the longest ago first.
    uses: BTreeMap<u64, CommandId>,
    tick: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Held {
    record: Arc<Record>,
    used: u64,
    bytes: usize,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, kept: Mutex::default() }
    }

    /// Keeps a record, if it is one that cannot change before it expires and is small enough.
    pub(crate) fn keep(&self, id: CommandId, record: &Arc<Record>) {
        let (State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. }) = record.state()
        else {
            return;
        };
        let bytes = RECORD_BYTES + outcome_bytes(outcome);
        // One large outcome must not drive out all the small ones.
        if bytes > self.bytes_max / 8 {
            return;
        }
        let mut kept = self.kept();
        kept.drop_one(id);
        while kept.bytes + bytes > self.bytes_max {
            let Some((_, oldest)) = kept.uses.first_key_value() else { break };
            let oldest = *oldest;
            kept.drop_one(oldest);
        }
        kept.tick += 1;
        let used = kept.tick;
        kept.uses.insert(used, id);
        kept.bytes += bytes;
        kept.records.insert(id, Held { record: Arc::clone(record), used, bytes });
    }

    pub(crate) fn get(&self, id: CommandId) -> Option<Arc<Record>> {
        let mut kept = self.kept();
        kept.tick += 1;
        let now = kept.tick;
        let held = kept.records.get_mut(&id)?;
        let before = std::mem::replace(&mut held.used, now);
        let record = Arc::clone(&held.record);
        kept.uses.remove(&before);
        kept.uses.insert(now, id);
        Some(record)
    }

    /// Forgets a record whose time is over.
    pub(crate) fn forget(&self, id: CommandId) {
        self.kept().drop_one(id);
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Kept {
    fn drop_one(&mut self, id: CommandId) {
        if let Some(held) = self.records.remove(&id) {
            self.uses.remove(&held.used);
            self.bytes -= held.bytes;
        }
    }
}

fn outcome_bytes(outcome: &Outcome) -> usize {
    let body = match &outcome.body {
        Body::Kept(body) | Body::Sealed(body) => body.len(),
        Body::NotRetained => 0,
    };
    let fields = |fields: &semel_core::outcome::Fields| -> usize {
        fields.iter().map(|(name, value)| name.len() + value.len() + 4).sum()
    };
    body + fields(&outcome.headers) + fields(&outcome.trailers)
}
