//! How an operator erases a record's content without changing its guarantees.

use super::dates::{expires_at, gone_at};
use super::{Refusal, Stamp, Write, rules, written};
use crate::fingerprint::Fingerprint;
use crate::labels::Labels;
use crate::outcome::Outcome;
use crate::record::{Record, State};
use crate::time::{Now, Time};

/// Replaces the fingerprint of an erased record: a fingerprint is an unkeyed hash and could confirm a guessed payload.
const NO_FINGERPRINT: Fingerprint = Fingerprint::from_bytes([0; 32]);

/// How much of a record is erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Erasure {
    /// The stored response and its labels. State, expiry and payload fingerprint stay: a retry is answered as one whose
    /// response was not retained.
    Response,
    /// Everything except a tombstone: a retry is answered as expired until the key would have been free anyway.
    Record,
}

/// Erases a record's stored response, or the whole record except a tombstone. It never allows a run that was not
/// allowed before.
///
/// Fails unless [`may_erase`] allows it, and while the clock is untrusted, because the write could not be dated. The key
/// stays bound for as long as it would have been: as judged now, because the record's new date is one of this time.
///
/// ```
/// # use semel_core::{fingerprint::Fingerprint, id::*, policy::*, time::Time};
/// # use semel_core::machine::{Begin, Command, Decision, Found, Stamp, NewAttempt, decide, finish};
/// # let (payload, token) = (Fingerprint::from_bytes([5; 32]), Token::from_random(7));
/// # let (key_hash, caller_hash) = (KeyHash::from_bytes([0; 32]), CallerHash::from_bytes([0; 32]));
/// # let (id, policy) = (CommandId::from_bytes([0; 32]), Policy::new(Class::External).into());
/// # let (operation_id, fingerprint) = (OperationId::of(&id), payload);
/// # let (operation, generation, payload) = ("pay".into(), 0, &payload);
/// # let command = Command { id, operation_id, key_hash, caller_hash, operation, policy, fingerprint, payload, generation };
/// # let stamp = Stamp::new(Time::from_millis(1), "operator", "a request under privacy law");
/// # let new_attempt = NewAttempt { token, begin: Begin::Processing };
/// # let Decision::Run(claim) = decide(Found::Nothing, &command, new_attempt, stamp) else { panic!() };
/// use semel_core::classify::Ending;
/// use semel_core::machine::{Erasure, Reply, erase};
/// use semel_core::outcome::Outcome;
/// # use semel_core::record::Token;
///
/// let paid = Ending::Succeeded(Outcome::http(201, [("location", "/charges/7")], "paid by Ada"));
/// let record = finish(&claim.next, token, paid, stamp)?.next;
/// let erased = erase(&record, Erasure::Record, stamp)?.next;
/// let retry = decide(Found::Record(&erased), &command, new_attempt, stamp);
/// assert_eq!(retry, Decision::Answer(Reply::Expired)); // and nothing runs
/// # Ok::<(), semel_core::machine::Refusal>(())
/// ```
pub fn erase(record: &Record, erasure: Erasure, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    may_erase(record)?;
    if !stamp.now.can_claim() {
        return Err(Refusal::ClockNotTrusted);
    }
    let state = match erasure {
        Erasure::Response => without_response(record, stamp.now),
        Erasure::Record => State::Expired { until: gone_at(record, stamp.now).ok_or(Refusal::WrongState)? },
    };
    let mut next = written(record, state, stamp);
    next.labels = Labels::default();
    if erasure == Erasure::Record {
        next.fingerprint = NO_FINGERPRINT;
    }
    rules::swap(record, next)
}

/// Whether an operator may [`erase`] this record: it must be `SUCCEEDED` or one of the two `FAILED` states. A running
/// or uncertain attempt must be settled first, and a tombstone has nothing left to erase.
pub fn may_erase(record: &Record) -> Result<(), Refusal> {
    match record.state {
        State::Succeeded { .. } | State::FailedReplayable { .. } | State::FailedNotReplayable { .. } => {
            Ok(())
        }
        State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } | State::Expired { .. } => {
            Err(Refusal::WrongState)
        }
    }
}

/// Whether this is the tombstone of an erased record, so that its payload is no longer known.
pub(super) fn is_erased(record: &Record) -> bool {
    matches!(record.state, State::Expired { .. }) && record.fingerprint == NO_FINGERPRINT
}

fn without_response(record: &Record, now: Now) -> State {
    let kept_until = |stored: Time| expires_at(record, now).unwrap_or(stored);
    match &record.state {
        State::Succeeded { outcome, expires_at } => State::Succeeded {
            outcome: Outcome::not_retained(outcome.status),
            expires_at: kept_until(*expires_at),
        },
        State::FailedReplayable { outcome, expires_at } => State::FailedReplayable {
            outcome: Outcome::not_retained(outcome.status),
            expires_at: kept_until(*expires_at),
        },
        State::FailedNotReplayable { proof, bound, expires_at, .. } => State::FailedNotReplayable {
            outcome: None,
            proof: *proof,
            bound: *bound,
            expires_at: *expires_at,
        },
        other => other.clone(),
    }
}
