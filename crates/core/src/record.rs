//! What a store keeps for one command.
//!
//! The record, whose data depends on its state, and the marker that a moved command leaves. Only
//! [`machine`](crate::machine) makes a new record.

use crate::fingerprint::Fingerprint;
use crate::history::{self, History};
use crate::id::{CallerHash, KeyHash, OperationId};
use crate::labels::Labels;
use crate::outcome::Outcome;
use crate::policy::{AfterExpiry, Policy};
use crate::time::Time;
use std::fmt;
use std::sync::Arc;

pub use crate::state_name::StateName;

/// 128 random bits, new for every attempt: identifies the owner of that attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u128);

impl Token {
    /// A token from 128 fresh random bits.
    pub const fn from_random(bits: u128) -> Self {
        Self(bits)
    }

    /// The bits that a store keeps.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

/// The first eight digits only: anyone who knows a token can finish its attempt.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:08x}…)", self.0 >> 96)
    }
}

/// What proves that no attempt of a `FAILED_NOT_REPLAYABLE` record took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proof {
    /// The owner reported it.
    Owner,
    /// A reconciler or an operator reported it. The owner's own report, if it comes later, overrides it.
    Verdict,
    /// The lease expired before the effect began, or before its transaction committed.
    NeverBegan,
}

/// Why a record is `UNKNOWN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    /// The owner's lease expired while the effect may have been running.
    Lapsed,
    /// The owner ended the attempt and did not know whether it took effect.
    Owner,
}

/// The state of a record, with the data that this state has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Reserved; the effect has not begun.
    Claimed {
        /// Nobody else may take over the claim before this moment.
        lease_until: Time,
    },
    /// The effect may have begun.
    Processing {
        /// The owner is presumed alive until this moment.
        lease_until: Time,
    },
    /// The effect happened. Final until it expires.
    Succeeded {
        /// What is replayed.
        outcome: Outcome,
        /// When it stops being replayed.
        expires_at: Time,
    },
    /// The command was refused permanently. Final until it expires.
    FailedReplayable {
        /// What is replayed.
        outcome: Outcome,
        /// When it stops being replayed.
        expires_at: Time,
    },
    /// No attempt took effect; the next request is the next attempt.
    FailedNotReplayable {
        /// The answer of the last attempt, for duplicates that waited for it.
        outcome: Option<Outcome>,
        /// What proves that nothing took effect.
        proof: Proof,
        /// Whether the next attempt must have the same payload. An operator's release clears this.
        bound: bool,
        /// From this moment the record counts as absent.
        expires_at: Time,
    },
    /// Nobody can prove whether the effect happened. Never expires by itself.
    Unknown {
        /// Why.
        doubt: Doubt,
        /// Since when.
        since: Time,
        /// How many probes were inconclusive.
        probes: u32,
        /// When to probe next; `None` if only an operator can help.
        next_probe_at: Option<Time>,
    },
    /// A tombstone: the outcome has expired.
    Expired {
        /// When the tombstone can be removed.
        until: Time,
    },
}

/// The bytes of an `Arc`'s two counters.
const COUNTED_BYTES: usize = 2 * size_of::<usize>();

/// What a store keeps for one command.
///
/// A record cannot be built or changed by hand: [`machine`](crate::machine) holds every transition, and each yields a
/// new record whose [`version`](Self::version) is one higher. Debug output is safe to log: prefixes of hashes,
/// lengths of bodies.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Record {
    pub(crate) operation_id: OperationId,
    /// The generation of the hashing secret that made this record's ID: 0 for a store's first secret, one more for
    /// each after.
    pub(crate) generation: u32,
    pub(crate) key_hash: KeyHash,
    pub(crate) caller_hash: CallerHash,
    pub(crate) operation: Arc<str>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) version: u64,
    pub(crate) token: Token,
    pub(crate) attempt: u32,
    pub(crate) fence: u64,
    pub(crate) created_at: Time,
    pub(crate) updated_at: Time,
    /// When the owner last wrote: its claim, a renewal, or its own ending. The quiet period counts from here.
    pub(crate) owner_wrote_at: Time,
    /// An earlier attempt ended in doubt, and no outcome or verdict has resolved it since.
    pub(crate) earlier_doubt: bool,
    pub(crate) state: State,
    pub(crate) history: History,
    /// The handler's labels for the outcome.
    pub(crate) labels: Labels,
    /// Extensions of a newer version that this one may ignore; kept so that writing the record back loses nothing.
    pub(crate) extensions: bytes::Bytes,
}

impl Record {
    /// The public name of the command, the same on every attempt and replay.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// The generation of the hashing secret that made this record's ID: 0 for a store's first secret, one more for
    /// each that replaced it. A secret can be dropped as soon as no record of its generation is left.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The keyed hash of the key.
    pub fn key_hash(&self) -> KeyHash {
        self.key_hash
    }

    /// The keyed hash of the caller.
    pub fn caller_hash(&self) -> CallerHash {
        self.caller_hash
    }

    /// The operation's name, as configured or as method and path.
    pub fn operation(&self) -> &Arc<str> {
        &self.operation
    }

    /// The policy that this record was claimed under. It applies to every retry.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The fingerprint of the payload that the key is bound to.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// How many times this record was written; grows by one with every write.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// The token of the current attempt.
    pub fn token(&self) -> Token {
        self.token
    }

    /// How many attempts have begun.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Grows with every attempt. The system that runs the effect can use it to refuse a late attempt.
    pub fn fence(&self) -> u64 {
        self.fence
    }

    /// When the first attempt was claimed.
    pub fn created_at(&self) -> Time {
        self.created_at
    }

    /// When the record was last written.
    pub fn updated_at(&self) -> Time {
        self.updated_at
    }

    /// When the owner itself last wrote.
    pub fn owner_wrote_at(&self) -> Time {
        self.owner_wrote_at
    }

    /// Whether an earlier attempt ended in doubt that nothing has resolved since.
    pub fn earlier_doubt(&self) -> bool {
        self.earlier_doubt
    }

    /// The state and its data.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The record's latest changes.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Sets the state. The labels of a final outcome move to the record. Those of an attempt without effect are
    /// dropped.
    pub(crate) fn set_state_with_labels(&mut self, mut state: State) {
        let labels = match &mut state {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => {
                Some(std::mem::take(&mut outcome.labels))
            }
            State::FailedNotReplayable { outcome: Some(outcome), .. } => {
                outcome.labels = Labels::default();
                None
            }
            _ => None,
        };
        if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
            self.labels = labels;
        }
        self.state = state;
    }

    /// The handler's labels for the outcome.
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// The name of the state.
    pub fn state_name(&self) -> StateName {
        match self.state {
            State::Claimed { .. } => StateName::Claimed,
            State::Processing { .. } => StateName::Processing,
            State::Succeeded { .. } => StateName::Succeeded,
            State::FailedReplayable { .. } => StateName::FailedReplayable,
            State::FailedNotReplayable { .. } => StateName::FailedNotReplayable,
            State::Unknown { .. } => StateName::Unknown,
            State::Expired { .. } => StateName::Expired,
        }
    }

    /// Whether the outcome is final: only the end of its retention changes it.
    pub fn is_terminal(&self) -> bool {
        matches!(self.state, State::Succeeded { .. } | State::FailedReplayable { .. } | State::Expired { .. })
    }

    /// How many bytes of memory the record uses, including everything it refers to. Shared data is counted in full.
    pub fn memory_bytes(&self) -> usize {
        let entry = |entry: &history::Entry| size_of::<history::Entry>() + entry.who.len() + entry.why.len();
        let outcome = match &self.state {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
            State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
            _ => None,
        };
        size_of::<Self>()
            + COUNTED_BYTES
            + self.operation.len()
            + self.policy.memory_bytes()
            + self.history.entries().iter().map(entry).sum::<usize>()
            + outcome.map_or(0, Outcome::memory_bytes)
            + self.labels.memory_bytes()
            + self.extensions.len()
    }

    /// A deep copy. A record that was read shares a buffer with everything read in the same batch, and keeps that
    /// whole buffer alive.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut record = self.clone();
        match &mut record.state {
            State::Succeeded { outcome, .. }
            | State::FailedReplayable { outcome, .. }
            | State::FailedNotReplayable { outcome: Some(outcome), .. } => outcome.detach(),
            _ => {}
        }
        record.extensions = bytes::Bytes::copy_from_slice(&record.extensions);
        record
    }

    /// When a sweeper or reconciler should next look at this record: what a store's index of due records holds.
    pub fn due_at(&self) -> Option<Time> {
        match self.state {
            State::Claimed { lease_until } | State::Processing { lease_until } => {
                Some(lease_until + self.policy.skew)
            }
            State::Succeeded { expires_at, .. }
            | State::FailedReplayable { expires_at, .. }
            | State::FailedNotReplayable { expires_at, .. } => Some(expires_at),
            State::Unknown { next_probe_at, .. } => next_probe_at,
            State::Expired { until } => Some(until),
        }
    }

    /// When the owner's lease ends, if there is an owner. [`machine::is_lease_dead`](crate::machine::is_lease_dead)
    /// decides whether others may treat the lease as expired.
    pub fn lease_until(&self) -> Option<Time> {
        match self.state {
            State::Claimed { lease_until } | State::Processing { lease_until } => Some(lease_until),
            _ => None,
        }
    }

    /// Until when the stored outcome is replayed, if there is one.
    pub fn expires_at(&self) -> Option<Time> {
        match self.state {
            State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. } => {
                Some(expires_at)
            }
            _ => None,
        }
    }

    /// From when the key counts as unused, even if no sweeper has removed the record yet.
    pub fn gone_at(&self) -> Option<Time> {
        match self.state {
            State::FailedNotReplayable { expires_at, .. } => Some(expires_at),
            State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. } => {
                Some(self.tombstone_until(expires_at))
            }
            State::Expired { until } => Some(until),
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => None,
        }
    }

    /// When the tombstone of an outcome that expired at `expires_at` can be removed.
    pub(crate) fn tombstone_until(&self, expires_at: Time) -> Time {
        match self.policy.after_expiry {
            AfterExpiry::Refuse => expires_at + self.policy.tombstone,
            AfterExpiry::RunAsNew => expires_at,
        }
    }
}

/// Builds records that no transition produces, for tests of faults.
#[cfg(feature = "tamper")]
#[expect(missing_docs, reason = "each sets the field of its name")]
impl Record {
    pub fn set_token(&mut self, token: Token) {
        self.token = token;
    }

    pub fn set_fence(&mut self, fence: u64) {
        self.fence = fence;
    }

    pub fn set_policy(&mut self, policy: Arc<Policy>) {
        self.policy = policy;
    }

    pub fn set_earlier_doubt(&mut self, earlier_doubt: bool) {
        self.earlier_doubt = earlier_doubt;
    }

    pub fn set_state(&mut self, state: State) {
        self.state = state;
    }
}

/// Extensions of a newer version are opaque bytes, so they are left out.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("operation_id", &self.operation_id)
            .field("generation", &self.generation)
            .field("key_hash", &self.key_hash)
            .field("caller_hash", &self.caller_hash)
            .field("operation", &self.operation)
            .field("policy", &self.policy)
            .field("fingerprint", &self.fingerprint)
            .field("version", &self.version)
            .field("token", &self.token)
            .field("attempt", &self.attempt)
            .field("fence", &self.fence)
            .field("created_at", &self.created_at)
            .field("updated_at", &self.updated_at)
            .field("owner_wrote_at", &self.owner_wrote_at)
            .field("earlier_doubt", &self.earlier_doubt)
            .field("state", &self.state)
            .field("history", &self.history)
            .field("labels", &self.labels)
            .field("extensions", &format_args!("{} bytes", self.extensions.len()))
            .finish()
    }
}

/// What is in a store under one command id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Entry {
    /// The record of a command.
    Record(Box<Record>),
    /// The command is stored under the ID that the next hashing secret gives it. Never expires while any node knows
    /// the old secret.
    Moved,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_token_is_not_enough_to_use_it() {
        let token = Token::from_random(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(format!("{token:?}"), "Token(01234567…)");
        assert_eq!(token.bits(), 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    }
}
