//! Sealing outcomes before they are stored, and opening stored ones.

use crate::observe::{Event, Observer};
use crate::runtime::random::Random;
use crate::sealing::{KeyRing, Seal};
use semel_core::classify::Ending;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::Verdict;
use semel_core::outcome::{Body, Outcome};
use std::sync::Arc;

/// The sealing keys of a node. Without any, outcomes are stored as they are.
pub(crate) struct OutcomeSealing {
    keys: Option<KeyRing>,
    random: Arc<dyn Random>,
    observer: Arc<dyn Observer>,
}

impl OutcomeSealing {
    pub(crate) fn new(keys: Option<KeyRing>, random: Arc<dyn Random>, observer: Arc<dyn Observer>) -> Self {
        Self { keys, random, observer }
    }

    pub(crate) fn has_keys(&self) -> bool {
        self.keys.is_some()
    }

    /// An outcome as it is stored under `id`.
    pub(crate) fn seal(&self, id: CommandId, outcome: Outcome) -> Outcome {
        match &self.keys {
            Some(ring) => ring.seal(&id, &outcome, &*self.random),
            None => outcome,
        }
    }

    /// An ending as its owner stores it.
    pub(crate) fn seal_ending(&self, id: CommandId, seal: Seal, ending: Ending) -> Ending {
        if seal == Seal::Off {
            return ending;
        }
        let seal = |outcome| self.seal(id, outcome);
        match ending {
            Ending::Succeeded(outcome) => Ending::Succeeded(seal(outcome)),
            Ending::FailedReplayable(outcome) => Ending::FailedReplayable(seal(outcome)),
            Ending::NotApplied(outcome) => Ending::NotApplied(outcome.map(seal)),
            Ending::NotAppliedForGood(outcome) => Ending::NotAppliedForGood(seal(outcome)),
            Ending::InDoubt => Ending::InDoubt,
        }
    }

    /// A verdict as it is stored under `id`.
    pub(crate) fn seal_verdict(&self, id: CommandId, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Applied(outcome) => Verdict::Applied(outcome.map(|outcome| self.seal(id, outcome))),
            Verdict::Failed(outcome) => Verdict::Failed(self.seal(id, outcome)),
            Verdict::NotApplied { .. } | Verdict::Refused => verdict,
        }
    }

    /// A stored outcome, unsealed. One that cannot be unsealed counts as not retained.
    pub(crate) fn open(&self, id: CommandId, operation_id: OperationId, outcome: &Outcome) -> Outcome {
        let opened = match (&self.keys, &outcome.body) {
            (_, Body::Kept(_) | Body::NotRetained) => return outcome.clone(),
            (Some(ring), Body::Sealed(_)) => ring.open(&id, outcome).ok(),
            (None, Body::Sealed(_)) => None,
        };
        opened.unwrap_or_else(|| {
            self.observer.observe(&Event::Unopened { operation_id });
            Outcome::not_retained(outcome.status)
        })
    }
}
