//! Holds a history to its promises, from the outside.
//!
//! What lives here: what the audit has seen of each key, and what it makes of it. It sees the world from three sides
//! that the engine cannot bend: what is really written into the store, what really reaches the provider, and what
//! callers hear. What must never: a call of the machine's code. Its rules are written a second time here, as promises
//! about what is seen, so that a rule that is wrong there is not wrong here in the same way.

mod effect;
mod erased;
mod stored;
mod told;

use super::exercised::{Exercised, Tally};
use super::plan::{Misfortune, Plan, Sealing};
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
    /// Which.
    pub promise: Promise,
    /// About which key.
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
    told: bool,
    /// The ring of sealing keys by which it was stored.
    ring: u64,
    /// Since when it is erased.
    erased_at: Option<u64>,
}

/// One retention period of a key: from its first claim until everything about it is forgotten.
#[derive(Default)]
struct Period {
    effects: Vec<Effect>,
    /// Only a tombstone is left, because somebody asked for it.
    is_erased: bool,
}

/// What the audit knows of one key.
struct KeyFile {
    policy: Arc<Policy>,
    /// What stands in the store.
    standing: Option<Record>,
    damaged: bool,
    /// What operators have asked to erase at some time: a write may arrive late.
    erasing: Vec<Erasure>,
    /// A fault has touched an attempt at this key.
    touched: bool,
    periods: Vec<Period>,
    /// Which period each attempt belongs to, by its fence.
    fences: BTreeMap<u64, usize>,
    terminals: Vec<Terminal>,
    /// Which payload was bound since when.
    bound: Vec<(u64, Option<usize>)>,
}

/// A call that somebody made.
struct Call {
    key: usize,
    payload: usize,
    /// Every node that has a hand in it.
    nodes: BTreeSet<usize>,
    asked: u64,
    asked_at: Time,
    /// The outcome that was the answer when it was asked, as a place among the terminals.
    known: Option<usize>,
    open: bool,
    denied: bool,
    effects: usize,
}

/// Holds a history to its promises.
pub(crate) struct Audit {
    pub(crate) trace: Trace,
    pub(crate) tally: Tally,
    /// Which ring of sealing keys nodes get that start now.
    pub(crate) ring: u64,
    /// What opens every outcome, where outcomes are sealed.
    master: Option<KeyRing>,
    has_quota: bool,
    /// Whether the store's clock is ever out of the question.
    has_wrong_clock: bool,
    /// How many records there may be, where that is exact: one node counts them, and nothing fails.
    cap: Option<u64>,
    skew: Duration,
    /// How long after an erasure a node may still answer with what was erased.
    forgotten_after: Duration,
    ids: Vec<CommandId>,
    fingerprints: Vec<Fingerprint>,
    keys: Vec<KeyFile>,
    calls: Vec<Call>,
    violation: Option<Violation>,
}

impl Audit {
    pub(crate) fn new(plan: &Plan, ids: Vec<CommandId>, fingerprints: Vec<Fingerprint>) -> Self {
        let file = |policy: &Arc<Policy>| KeyFile {
            policy: Arc::clone(policy),
            standing: None,
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
            has_wrong_clock: plan.misfortunes.contains(&Misfortune::WrongClock),
            cap: plan.cap().filter(|_| plan.is_calm && plan.nodes == 1),
            // Clocks here tell whole milliseconds.
            skew: plan.skew + Duration::from_millis(2),
            forgotten_after: plan.forgotten_after(),
            ids,
            fingerprints,
            keys: plan.keys.iter().map(|key| file(&key.policy)).collect(),
            calls: Vec::new(),
            violation: None,
        }
    }

    pub(crate) fn key_of(&self, id: CommandId) -> Option<usize> {
        self.ids.iter().position(|known| *known == id)
    }

    pub(crate) fn note(&mut self, now: u64, key: Option<usize>, text: String) {
        self.trace.push(now, key, text);
    }

    /// The first broken promise counts; what follows from it is of no interest.
    pub(crate) fn broken(&mut self, promise: Promise, key: Option<usize>, how: impl Into<String>) {
        self.violation.get_or_insert_with(|| Violation { promise, key, how: how.into() });
    }

    pub(crate) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// A fault has touched an attempt at this key, so that a doubt may come of it.
    pub(crate) fn touch(&mut self, key: Option<usize>) {
        if let Some(key) = key {
            self.keys[key].touched = true;
        }
    }

    /// A node dies, stands still or is shut down: whatever it had under way may end in doubt.
    pub(crate) fn node_fails(&mut self, node: usize) {
        let open: BTreeSet<usize> = self
            .calls
            .iter()
            .filter(|call| call.open && call.nodes.contains(&node))
            .map(|call| call.key)
            .collect();
        for (key, file) in self.keys.iter_mut().enumerate() {
            let under_way = file.standing.as_ref().is_some_and(|record| {
                matches!(record.state_name(), StateName::Claimed | StateName::Processing)
            });
            file.touched |= under_way || open.contains(&key);
        }
    }

    /// What stands under a key can no longer be read.
    pub(crate) fn damaged(&mut self, key: usize) {
        self.keys[key].damaged = true;
        self.tally.count(Exercised::Damage);
    }

    /// An operator asks to erase what is stored under a key.
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

    pub(crate) fn standing(&self, key: usize) -> Option<&Record> {
        self.keys[key].standing.as_ref()
    }
}
