//! Checks from the outside whether a history keeps the promises.
//!
//! The audit observes three things that the engine cannot influence: the writes in the store, the effects that reach
//! the provider, and the answers to callers. It never calls the machine's code. Its rules are written a second time
//! here, so that a mistake there is not repeated here.

mod answered;
mod effect;
mod erased;
mod stored;

use super::exercised::{Exercised, Tally};
use super::plan::{Plan, PlannedFault, Sealing};
use super::promise::Promise;
use super::ring;
use super::trace::Trace;
use semel::core::fingerprint::Fingerprint;
use semel::core::id::CommandId;
use semel::core::machine::Erasure;
use semel::core::outcome::Outcome;
use semel::core::policy::Policy;
use semel::core::record::{Record, StateName};
use semel::core::time::Time;
use semel::sealing::KeyRing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(crate) use effect::Effect;

/// A promise that was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// For which key.
    pub key: Option<usize>,
    /// How.
    pub how: String,
}

/// A stored final outcome.
struct Terminal {
    period: usize,
    payload: Option<usize>,
    outcome: Outcome,
    state: StateName,
    expires_at: Time,
    was_answered: bool,
    /// The ring of sealing keys it was stored with.
    ring: u64,
    /// When it was erased.
    erased_at: Option<u64>,
}

/// One retention period of a key: from its first claim until its record is gone.
#[derive(Default)]
struct Period {
    effects: Vec<Effect>,
    /// Only a tombstone is left, because of a requested erasure.
    is_erased: bool,
}

/// What the audit knows about one key.
struct KeyFile {
    policy: Arc<Policy>,
    /// The record in the store.
    current: Option<Record>,
    damaged: bool,
    /// Erasures that operators have requested; a write may arrive late.
    erasing: Vec<Erasure>,
    /// A fault has affected an attempt at this key.
    touched: bool,
    periods: Vec<Period>,
    /// Which period each attempt belongs to, by its fence.
    fences: BTreeMap<u64, usize>,
    terminals: Vec<Terminal>,
    /// Which payload was bound, and since when.
    bound: Vec<(u64, Option<usize>)>,
}

/// A call of a client.
struct Call {
    key: usize,
    payload: usize,
    /// Every node that is involved.
    nodes: BTreeSet<usize>,
    asked: u64,
    asked_at: Time,
    /// The index of the outcome that was the answer when the call was made.
    known: Option<usize>,
    open: bool,
    denied: bool,
    effects: usize,
}

/// What a node knew of the time when it started, if its clock was wrong.
#[derive(Debug, Clone, Copy)]
struct Start {
    at: u64,
    /// The latest time of any node, as the store had it.
    mark: Time,
}

/// Checks a history against the promises.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a history")]
pub(crate) struct Audit {
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    /// Which ring of sealing keys starting nodes get.
    pub(crate) ring: u64,
    /// Opens every outcome, if outcomes are sealed.
    master: Option<KeyRing>,
    has_quota: bool,
    /// Whether the store's clock is ever far wrong.
    has_wrong_clock: bool,
    /// Whether a node has another clock than the others.
    has_two_clocks: bool,
    /// Whether an operator confirmed the clock.
    is_confirmed: bool,
    /// The maximum number of records, if it is exact: one node counts them, and nothing fails.
    cap: Option<u64>,
    skew: Duration,
    /// How long after an erasure a node may still answer with the erased outcome.
    forgotten_after: Duration,
    ids: Vec<CommandId>,
    fingerprints: Vec<Fingerprint>,
    keys: Vec<KeyFile>,
    calls: Vec<Call>,
    /// The last start of each node, if there was a mark.
    starts: BTreeMap<usize, Start>,
    violation: Option<Violation>,
}

impl Audit {
    pub(crate) fn new(plan: &Plan, ids: Vec<CommandId>, fingerprints: Vec<Fingerprint>) -> Self {
        let file = |policy: &Arc<Policy>| KeyFile {
            policy: Arc::clone(policy),
            current: None,
            damaged: false,
            erasing: Vec::new(),
            touched: false,
            periods: Vec::new(),
            fences: BTreeMap::new(),
            terminals: Vec::new(),
            bound: Vec::new(),
        };
        Self {
            trace: Trace::default(),
            tally: Tally::default(),
            ring: 0,
            master: (plan.sealing != Sealing::Off).then(ring::master),
            has_quota: !plan.quotas.are_off(),
            has_wrong_clock: plan.planned_faults.contains(&PlannedFault::WrongClock) || plan.contradicts,
            has_two_clocks: plan.contradicts,
            is_confirmed: false,
            cap: plan.cap().filter(|_| plan.is_calm && plan.nodes == 1),
            // Clocks here show whole milliseconds.
            skew: plan.skew + Duration::from_millis(2),
            forgotten_after: plan.forgotten_after(),
            ids,
            fingerprints,
            keys: plan.keys.iter().map(|key| file(&key.policy)).collect(),
            calls: Vec::new(),
            starts: BTreeMap::new(),
            violation: None,
        }
    }

    pub(crate) fn key_of(&self, id: CommandId) -> Option<usize> {
        self.ids.iter().position(|known| *known == id)
    }

    pub(crate) fn note(&mut self, now: u64, key: Option<usize>, text: String) {
        self.trace.push(now, key, text);
    }

    /// Only the first broken promise counts; others may follow from it.
    pub(crate) fn broken(&mut self, promise: Promise, key: Option<usize>, how: impl Into<String>) {
        self.violation.get_or_insert_with(|| Violation { promise, key, how: how.into() });
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// A fault has affected an attempt at this key, so it may end in doubt.
    pub(crate) fn touch(&mut self, key: Option<usize>) {
        if let Some(key) = key {
            self.keys[key].touched = true;
        }
    }

    /// A node dies, stops or is shut down: everything it was running may end in doubt.
    pub(crate) fn node_fails(&mut self, node: usize) {
        let open: BTreeSet<usize> = self
            .calls
            .iter()
            .filter(|call| call.open && call.nodes.contains(&node))
            .map(|call| call.key)
            .collect();
        for (key, file) in self.keys.iter_mut().enumerate() {
            let is_running = file.current.as_ref().is_some_and(|record| {
                matches!(record.state_name(), StateName::Claimed | StateName::Processing)
            });
            file.touched |= is_running || open.contains(&key);
        }
    }

    /// A node has started, and has read `mark` as the latest time of any node.
    pub(crate) fn node_started(&mut self, at: u64, node: usize, mark: Option<Time>) {
        match mark {
            Some(mark) => drop(self.starts.insert(node, Start { at, mark })),
            None => drop(self.starts.remove(&node)),
        }
    }

    /// A node starts with another clock: whatever it claims until it notices may end in doubt.
    pub(crate) fn two_clocks(&mut self) {
        self.tally.count(Exercised::OtherClock);
        for file in &mut self.keys {
            file.touched = true;
        }
    }

    /// An operator confirmed the clock: outcomes are kept longer than their dates say.
    pub(crate) fn confirmed(&mut self) {
        self.is_confirmed = true;
    }

    /// The entry of a key can no longer be read.
    pub(crate) fn damaged(&mut self, key: usize) {
        self.keys[key].damaged = true;
        self.tally.count(Exercised::Damage);
    }

    /// An operator asks to erase the record of a key.
    pub(crate) fn erasing(&mut self, key: usize, what: Erasure) {
        self.keys[key].erasing.push(what);
    }

    pub(crate) fn is_damaged(&self, key: usize) -> bool {
        self.keys[key].damaged
    }

    /// The payload that a key is bound to.
    pub(crate) fn bound_payload(&self, key: usize) -> Option<usize> {
        self.keys[key].bound.last().and_then(|(_, payload)| *payload)
    }

    pub(crate) fn stored_record(&self, key: usize) -> Option<&Record> {
        self.keys[key].current.as_ref()
    }
}
