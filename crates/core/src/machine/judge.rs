//! What a request gets when it finds a record: the table of states, fingerprints and leases.

use super::dates::{
    expires_at, first_date, gone_at, is_age_known, is_repeat_open, lease_is_dead, repeat_before,
};
use super::{Command, Expect, Found, Stamp, Write, remember, rules, verdict};
use crate::fingerprint::ErrorKind;
use crate::history::History;
use crate::labels::Labels;
use crate::outcome::Outcome;
use crate::policy::{Class, Policy, PolicySettings};
use crate::record::{Proof, Record, State, Token};
use crate::time::{Now, Time};
use std::sync::Arc;
use std::time::Duration;

/// The initial state of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Begin {
    /// The worker has to prepare before the effect begins, and calls [`start`](super::start) right before it. A crash
    /// until then is harmless.
    Claimed,
    /// The effect begins immediately. This saves a write, but after a crash the outcome is in doubt.
    Processing,
}

/// What a request needs if it becomes the owner of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewAttempt {
    /// A fresh token that was never used for another attempt.
    pub token: Token,
    /// The initial state of the attempt.
    pub begin: Begin,
}

/// What a request has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a decision must be stored or answered"]
pub enum Decision<'a> {
    /// Store this write. When it is stored, the attempt is yours. If the store refuses it, decide again from the
    /// stored entry.
    Run(Box<Write>),
    /// The owner is gone and the effect is in doubt. Store this write, then answer [`Reply::Unknown`]. If the store
    /// refuses it, decide again.
    MarkUnknown(Box<Write>),
    /// Answer with this; there is nothing to store.
    Answer(Reply<'a>),
    /// The command is stored under the next secret's ID: decide again from the entry there.
    Follow,
}

/// The answer to a request that gets no attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the request must be answered with this reply"]
pub enum Reply<'a> {
    /// The stored outcome.
    Replay(&'a Outcome),
    /// Another attempt is running.
    InProgress,
    /// Nobody can prove whether the effect happened.
    Unknown,
    /// The key is bound to another payload.
    Mismatch,
    /// The outcome has expired.
    Expired,
    /// All attempts that the policy allows ended without effect.
    AttemptsExhausted,
    /// The entry is unreadable, or the next transition would break a [`Rule`](super::Rule). Answered like
    /// [`Reply::Unknown`]; raise an alarm.
    Unreadable,
    /// The decision depends on the time, and the clock is not trusted. Nothing was run; a later retry may succeed.
    ClockNotTrusted,
}

/// Decides what a request has to do, given what the store found under its command ID.
///
/// `stamp.now` must come from the same answer of the store as the record. If nothing was read yet (a claim that is
/// tried directly as an insert), use the store's last answer plus the time since then.
///
/// ```
/// # use semel_core::{fingerprint::Fingerprint, id::*, machine::{Command, Stamp}, policy::*, time::Time};
/// # fn command(payload: &Fingerprint) -> Command<'_> {
/// #     let (key_hash, caller_hash) = (KeyHash::from_bytes([0; 32]), CallerHash::from_bytes([0; 32]));
/// #     let (id, policy) = (CommandId::from_bytes([0; 32]), Policy::new(Class::External).into());
/// #     let (operation_id, fingerprint) = (OperationId::of(&id), *payload);
/// #     let (operation, generation) = ("pay".into(), 0);
/// #     Command { id, operation_id, key_hash, caller_hash, operation, policy, fingerprint, payload, generation }
/// # }
/// # fn stamp(millis: u64) -> Stamp<'static> {
/// #     Stamp::new(Time::from_millis(millis), "worker-1", "")
/// # }
/// use semel_core::machine::{Begin, Decision, Found, Reply, NewAttempt, decide};
/// use semel_core::record::{StateName, Token};
///
/// let (five, six) = (Fingerprint::from_bytes([5; 32]), Fingerprint::from_bytes([6; 32]));
/// let new_attempt = NewAttempt { token: Token::from_random(7), begin: Begin::Processing };
/// // A new key: run, as the first attempt.
/// let Decision::Run(write) = decide(Found::Nothing, &command(&five), new_attempt, stamp(0)) else { panic!() };
/// assert_eq!((write.next.state_name(), write.next.attempt()), (StateName::Processing, 1));
/// // A duplicate finds the record:
/// let found = Found::Record(&write.next);
/// assert_eq!(decide(found, &command(&five), new_attempt, stamp(1)), Decision::Answer(Reply::InProgress));
/// // The same key with another payload is refused in every state:
/// assert_eq!(decide(found, &command(&six), new_attempt, stamp(1)), Decision::Answer(Reply::Mismatch));
/// ```
pub fn decide<'a>(
    found: Found<'a>,
    command: &Command<'_>,
    new_attempt: NewAttempt,
    stamp: Stamp<'_>,
) -> Decision<'a> {
    match judge(found, command, stamp.now) {
        Judgement::Free => {
            let next = first_attempt(command, new_attempt, stamp);
            Decision::Run(Box::new(Write { expect: Expect::Absent, next }))
        }
        Judgement::Reuse(record) => {
            store(Decision::Run, record, reuse_key(record, command, new_attempt, stamp))
        }
        Judgement::Again(record) => {
            store(Decision::Run, record, next_attempt(record, command, new_attempt, stamp))
        }
        Judgement::Lapsed(record) => {
            store(Decision::MarkUnknown, record, verdict::lapsed_into_unknown(record, stamp))
        }
        Judgement::Final(reply) => Decision::Answer(reply),
        Judgement::Elsewhere => Decision::Follow,
    }
}

/// If `next` breaks a [`Rule`](super::Rule), nothing is stored and nothing runs.
fn store<'a>(decision: fn(Box<Write>) -> Decision<'a>, old: &Record, next: Record) -> Decision<'a> {
    match rules::swap(old, next) {
        Ok(write) => decision(Box::new(write)),
        Err(_) => Decision::Answer(Reply::Unreadable),
    }
}

/// The answer for a request that waits for a running duplicate, each time it reads the record.
///
/// A waiter never starts an attempt: if one is needed, the answer is still [`Reply::InProgress`]. The answer of an
/// attempt without effect counts as a result.
pub fn attend<'a>(found: Found<'a>, command: &Command<'_>, now: impl Into<Now>) -> Reply<'a> {
    match judge(found, command, now.into()) {
        Judgement::Final(Reply::AttemptsExhausted) => {
            stored_refusal(found).map_or(Reply::AttemptsExhausted, Reply::Replay)
        }
        Judgement::Final(reply) => reply,
        Judgement::Lapsed(_) | Judgement::Again(Record { state: State::Unknown { .. }, .. }) => {
            Reply::Unknown
        }
        Judgement::Again(_) => stored_refusal(found).map_or(Reply::InProgress, Reply::Replay),
        Judgement::Free | Judgement::Reuse(_) | Judgement::Elsewhere => Reply::InProgress,
    }
}

fn stored_refusal(found: Found<'_>) -> Option<&Outcome> {
    match found {
        Found::Record(Record {
            state: State::FailedNotReplayable { outcome: Some(outcome), bound: true, .. },
            ..
        }) => Some(outcome),
        _ => None,
    }
}

/// The result of the table, before a write is computed.
enum Judgement<'a> {
    /// No entry.
    Free,
    /// The record's retention is over: the command starts again in its place.
    Reuse(&'a Record),
    /// The next attempt at the same command.
    Again(&'a Record),
    /// The owner is gone and the effect in doubt.
    Lapsed(&'a Record),
    /// An answer.
    Final(Reply<'a>),
    /// A moved marker.
    Elsewhere,
}

fn judge<'a>(found: Found<'a>, command: &Command<'_>, now: Now) -> Judgement<'a> {
    let judgement = judge_by_the_clock(found, command, now);
    let needs_claim = matches!(judgement, Judgement::Free | Judgement::Reuse(_) | Judgement::Again(_));
    // A claim would be dated by a wrong clock.
    if needs_claim && !now.can_claim() { Judgement::Final(Reply::ClockNotTrusted) } else { judgement }
}

fn judge_by_the_clock<'a>(found: Found<'a>, command: &Command<'_>, now: Now) -> Judgement<'a> {
    let record = match found {
        Found::Nothing => return Judgement::Free,
        Found::Moved => return Judgement::Elsewhere,
        Found::Unreadable => return Judgement::Final(Reply::Unreadable),
        Found::Record(record) => record,
    };
    let is_gone = gone_at(record, now).is_some_and(|gone_at| now.at >= gone_at);
    if is_gone && now.can_expire() {
        return Judgement::Reuse(record);
    }
    if let State::Expired { .. } = record.state {
        // Without a trusted clock, an expired tombstone still refuses.
        return Judgement::Final(Reply::Expired);
    }
    if expires_at(record, now).is_some_and(|expires_at| now.at >= expires_at) {
        let is_certain = now.can_expire();
        return Judgement::Final(if is_certain { Reply::Expired } else { Reply::ClockNotTrusted });
    }
    if let State::FailedNotReplayable { bound: false, .. } = record.state {
        return Judgement::Again(record);
    }
    // Compare the payload before revealing or changing anything about the state.
    match is_same_payload(record, command) {
        Some(true) => judge_same(record, now),
        // Whether the key is still bound depends on the time.
        Some(false) if is_gone => Judgement::Final(Reply::ClockNotTrusted),
        Some(false) => Judgement::Final(Reply::Mismatch),
        None => Judgement::Final(Reply::Unreadable),
    }
}

/// Whether the command has the record's payload; `None` if this node does not know the record's fingerprint
/// algorithm.
fn is_same_payload(record: &Record, command: &Command<'_>) -> Option<bool> {
    if record.policy.selection == command.policy.selection {
        return Some(record.fingerprint == command.fingerprint);
    }
    match command.payload.fingerprint(&record.policy.selection) {
        Ok(fingerprint) => Some(record.fingerprint == fingerprint),
        Err(error) if error.kind() == ErrorKind::UnknownVersion => None,
        // The record's payload could be fingerprinted this way and this one cannot, so they differ.
        Err(_) => Some(false),
    }
}

fn judge_same(record: &Record, now: Now) -> Judgement<'_> {
    match &record.state {
        State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => {
            Judgement::Final(Reply::Replay(outcome))
        }
        // The limit counts attempts that ran to their end, not one that never began.
        State::FailedNotReplayable { proof: Proof::NeverBegan, .. } => Judgement::Again(record),
        State::FailedNotReplayable { .. } => match record.policy.attempts_max {
            Some(attempts_max) if record.attempt >= attempts_max => {
                Judgement::Final(Reply::AttemptsExhausted)
            }
            _ => Judgement::Again(record),
        },
        State::Claimed { lease_until } | State::Processing { lease_until }
            if !lease_is_dead(record, *lease_until, now) =>
        {
            Judgement::Final(Reply::InProgress)
        }
        State::Claimed { .. } if !record.earlier_doubt => Judgement::Again(record),
        State::Claimed { .. } | State::Processing { .. } if may_repeat(record, now) => {
            Judgement::Again(record)
        }
        State::Claimed { .. } | State::Processing { .. } => Judgement::Lapsed(record),
        State::Unknown { .. } if may_repeat(record, now) => Judgement::Again(record),
        State::Unknown { .. } => Judgement::Final(Reply::Unknown),
        State::Expired { .. } => Judgement::Final(Reply::Expired),
    }
}

/// Whether a new attempt may follow one that ended in doubt, so that a retry can resolve it. Depends on the class
/// that the record was claimed under and, in class `downstream`, on whether its window is still open.
#[must_use]
pub fn may_repeat(record: &Record, now: impl Into<Now>) -> bool {
    let now = now.into();
    match record.policy.class {
        // The earlier transaction can no longer commit: its fenced finish would be refused.
        Class::Local => true,
        Class::Downstream => is_repeat_open(record, now),
        Class::External => false,
    }
}

/// From when only a verdict or the owner can resolve a doubt. In class `downstream`, the next request resolves it
/// until then, and its answer is better proof than a verdict.
#[must_use]
pub fn to_be_asked_from(record: &Record, now: impl Into<Now>) -> Time {
    let now = now.into();
    match record.policy.class {
        Class::Downstream if is_age_known(record, now) => repeat_before(record, now),
        Class::Downstream | Class::External | Class::Local => record.created_at.min(now.at),
    }
}

fn first_attempt(command: &Command<'_>, new_attempt: NewAttempt, stamp: Stamp<'_>) -> Record {
    let mut record = Record {
        operation_id: command.operation_id,
        generation: command.generation,
        key_hash: command.key_hash,
        caller_hash: command.caller_hash,
        operation: Arc::clone(&command.operation),
        policy: Arc::clone(&command.policy),
        fingerprint: command.fingerprint,
        version: 1,
        token: new_attempt.token,
        attempt: 1,
        fence: stamp.now.at.as_millis(),
        created_at: stamp.now.at,
        updated_at: stamp.now.at,
        owner_wrote_at: stamp.now.at,
        earlier_doubt: false,
        state: initial_state(new_attempt.begin, &command.policy, stamp.now.at),
        history: History::default(),
        labels: Labels::default(),
        extensions: bytes::Bytes::new(),
    };
    remember(&mut record, stamp);
    record
}

/// The first attempt of a command in the place of a record whose retention is over. Version and fence keep growing,
/// so that holders of the old record cannot write.
fn reuse_key(old: &Record, command: &Command<'_>, new_attempt: NewAttempt, stamp: Stamp<'_>) -> Record {
    let mut record = first_attempt(command, new_attempt, stamp);
    record.operation_id = old.operation_id;
    record.version = old.version + 1;
    record.fence = next_fence(old, stamp.now.at);
    record
}

fn next_attempt(old: &Record, command: &Command<'_>, new_attempt: NewAttempt, stamp: Stamp<'_>) -> Record {
    let mut next = old.clone();
    match old.state {
        State::Processing { .. } | State::Unknown { .. } => {
            next.earlier_doubt = old.policy.class != Class::Local;
        }
        State::FailedNotReplayable { bound: false, .. } => {
            next.fingerprint = command.fingerprint;
            next.policy = Arc::clone(&command.policy);
        }
        _ => {}
    }
    next.policy = policy_of_next_attempt(&next, command);
    next.version += 1;
    next.token = new_attempt.token;
    next.attempt = next.attempt.saturating_add(1);
    next.fence = next_fence(old, stamp.now.at);
    next.created_at = first_date(old, stamp.now);
    next.updated_at = stamp.now.at;
    next.owner_wrote_at = stamp.now.at;
    next.state = initial_state(new_attempt.begin, &next.policy, stamp.now.at);
    remember(&mut next, stamp);
    next
}

/// The record's own policy with the lease and the work deadline of the next attempt's worker. If an earlier attempt
/// is in doubt, the longer values apply.
fn policy_of_next_attempt(record: &Record, command: &Command<'_>) -> Arc<Policy> {
    let (old, new) = (&record.policy, &command.policy);
    let pace = |old: Duration, new: Duration| if record.earlier_doubt { old.max(new) } else { new };
    let lease = pace(old.lease, new.lease);
    let work_deadline = pace(old.work_deadline, new.work_deadline);
    let skew = pace(old.skew, new.skew);
    if (lease, work_deadline, skew) == (old.lease, old.work_deadline, old.skew) {
        return Arc::clone(old);
    }
    let settings = PolicySettings { lease, work_deadline, skew, ..Policy::clone(old).into() };
    Arc::new(Policy::as_stored(settings))
}

fn next_fence(old: &Record, now: Time) -> u64 {
    now.as_millis().max(old.fence.saturating_add(1))
}

fn initial_state(begin: Begin, policy: &Policy, now: Time) -> State {
    let lease_until = now + policy.lease;
    match begin {
        Begin::Claimed => State::Claimed { lease_until },
        Begin::Processing => State::Processing { lease_until },
    }
}
