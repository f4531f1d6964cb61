//! What others do about an attempt whose owner is gone: mark it, probe it, resolve it, release it.

use super::dates::{expect_dead_lease, expect_quiet_over, is_dated_ahead, is_owner_ahead, quiet_until};
use super::{Refusal, Stamp, Write, rules, written};
use crate::outcome::{Outcome, Status};
use crate::policy::Class;
use crate::record::{Doubt, Proof, Record, State};
use crate::time::{Now, Time};
use std::time::Duration;

/// A finding about an effect in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It happened. Without an outcome, later requests learn that the answer was not retained.
    Applied(Option<Outcome>),
    /// It was refused permanently, with this answer. (The API checks that the answer is a refusal.)
    Failed(Outcome),
    /// It was absent at the moment `asked_at`. Counts only if the owner could no longer act at that time. The time of
    /// the *question* matters, because the effect may have arrived while the answer was in flight. (A time in the
    /// future counts as now.)
    NotApplied {
        /// When the system that runs the effect was asked, by the store's clock.
        asked_at: Time,
    },
    /// It did not happen and never will: the system that runs it now refuses this operation ID permanently.
    Refused,
}

impl Verdict {
    /// The verdict in a word, as shown in histories and the admin API.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Applied(_) => "applied",
            Self::Failed(_) => "failed",
            Self::NotApplied { .. } => "not-applied",
            Self::Refused => "refused for good",
        }
    }
}

/// The history's reason for an owner that went silent.
pub const LAPSED: &str = "the owner went silent and its lease ran out";

/// Handles an expired lease. `PROCESSING` becomes `UNKNOWN`, and so does a claim that inherited the doubt of an
/// earlier attempt. A claim that never began, or a `local` transaction that never committed, becomes
/// `FAILED_NOT_REPLAYABLE`.
pub fn lapse(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let (State::Claimed { lease_until } | State::Processing { lease_until }) = record.state else {
        return Err(Refusal::WrongState);
    };
    expect_dead_lease(record, lease_until, stamp.now)?;
    let has_begun = matches!(record.state, State::Processing { .. }) && record.policy.class != Class::Local;
    let next = if has_begun || record.earlier_doubt {
        lapsed_into_unknown(record, stamp)
    } else {
        let expires_at = stamp.now.at + record.policy.ttl;
        let state =
            State::FailedNotReplayable { outcome: None, proof: Proof::NeverBegan, bound: true, expires_at };
        written(record, state, stamp)
    };
    rules::swap(record, next)
}

pub(super) fn lapsed_into_unknown(record: &Record, stamp: Stamp<'_>) -> Record {
    let now = stamp.now.at;
    let state = State::Unknown { doubt: Doubt::Lapsed, since: now, probes: 0, next_probe_at: Some(now) };
    let why = if stamp.why.is_empty() { LAPSED } else { stamp.why };
    let mut next = written(record, state, Stamp { why, ..stamp });
    if is_owner_ahead(record, stamp.now) {
        next.owner_wrote_at = now;
    }
    next
}

/// Corrects a record that a wrong clock dated in the future. An `UNKNOWN` record starts its quiet period now and is
/// due for a probe; a record whose owner is gone [lapses](lapse).
///
/// Without this, "not applied" would be refused until that date.
pub fn redate(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    if !is_dated_ahead(record, stamp.now) {
        return Err(Refusal::WrongState);
    }
    let State::Unknown { doubt, since, probes, .. } = record.state else { return lapse(record, stamp) };
    if !stamp.now.can_judge_leases() {
        return Err(Refusal::ClockNotTrusted);
    }
    let now = stamp.now.at;
    let state = State::Unknown { doubt, since: since.min(now), probes, next_probe_at: Some(now) };
    let mut next = written(record, state, stamp);
    next.owner_wrote_at = record.owner_wrote_at.min(now);
    rules::swap(record, next)
}

/// Applies a reconciler's verdict to an `UNKNOWN` record.
///
/// "Applied" counts immediately. "Not applied" counts only after the quiet period since the owner's last stored
/// write: until then, a paused owner may still act, or its effect may still arrive.
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
/// use semel_core::machine::{Refusal, Verdict, lapse, reconcile};
/// use semel_core::record::{StateName, Token};
/// # use semel_core::machine::{Begin, Decision, Found, NewAttempt, decide};
/// # let (payload, token) = (Fingerprint::from_bytes([5; 32]), Token::from_random(7));
/// # let new_attempt = NewAttempt { token, begin: Begin::Processing };
/// # let Decision::Run(claim) = decide(Found::Nothing, &command(&payload), new_attempt, stamp(0)) else { panic!() };
/// let record = claim.next; // PROCESSING, claimed at moment 0; its owner is silent from now on
/// let quiet = record.policy().quiet().as_millis() as u64;
/// let lost = lapse(&record, stamp(30_000))?.next;
/// assert_eq!(lost.state_name(), StateName::Unknown);
/// // The provider does not know it. That is not a proof yet:
/// let absent = |asked_at| Verdict::NotApplied { asked_at: Time::from_millis(asked_at) };
/// assert!(matches!(reconcile(&lost, absent(quiet), stamp(quiet)), Err(Refusal::QuietUntil(_))));
/// let settled = reconcile(&lost, absent(quiet + 1), stamp(quiet + 1))?.next;
/// assert_eq!(settled.state_name(), StateName::FailedNotReplayable);
/// # Ok::<(), Refusal>(())
/// ```
pub fn reconcile(record: &Record, verdict: Verdict, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    reconcile_after(record, Duration::ZERO, verdict, stamp)
}

/// Like [`reconcile`], for effects that may take longer to appear: "not applied" counts only after a quiet period of
/// at least `quiet_min`.
pub fn reconcile_after(
    record: &Record,
    quiet_min: Duration,
    verdict: Verdict,
    stamp: Stamp<'_>,
) -> Result<Write, Refusal> {
    let State::Unknown { .. } = record.state else { return Err(Refusal::WrongState) };
    if let Verdict::NotApplied { asked_at } = verdict {
        expect_quiet_over(record, quiet_min, asked_at, stamp.now)?;
    }
    settled(record, verdict, stamp)
}

/// Records an inconclusive probe. The next one is due at `next_probe_at`; `None` leaves the record to an operator.
pub fn postpone(record: &Record, next_probe_at: Option<Time>, now: Time) -> Result<Write, Refusal> {
    let mut next = record.clone();
    let State::Unknown { probes, next_probe_at: planned, .. } = &mut next.state else {
        return Err(Refusal::WrongState);
    };
    *probes = probes.saturating_add(1);
    *planned = next_probe_at;
    next.version += 1;
    next.updated_at = now;
    rules::swap(record, next)
}

/// Plans the next probe of an `UNKNOWN` record without a probe now. The number of probes and the time of the last
/// change stay, because nothing happened to the command.
pub fn plan_probe(record: &Record, next_probe_at: Option<Time>) -> Result<Write, Refusal> {
    let mut next = record.clone();
    let State::Unknown { next_probe_at: planned, .. } = &mut next.state else {
        return Err(Refusal::WrongState);
    };
    *planned = next_probe_at;
    next.version += 1;
    rules::swap(record, next)
}

/// An operator's verdict on an `UNKNOWN` record, or on a `PROCESSING` one whose lease has expired, if [`may_resolve`]
/// allows it.
///
/// If the owner did not end the attempt itself, "not applied" and "failed" have to wait for the quiet period: no
/// operator can know what a paused owner will do.
pub fn resolve(record: &Record, verdict: Verdict, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    may_resolve(record, stamp.now)?;
    if !has_owner_ended(record) {
        match verdict {
            Verdict::NotApplied { asked_at } => {
                expect_quiet_over(record, Duration::ZERO, asked_at, stamp.now)?;
            }
            Verdict::Failed(_) => expect_quiet_over(record, Duration::ZERO, stamp.now.at, stamp.now)?,
            Verdict::Applied(_) | Verdict::Refused => {}
        }
    }
    settled(record, verdict, stamp)
}

/// Whether the record still belongs to the attempt with this fence. A verdict that was formed about one attempt says
/// nothing about the next.
pub fn expect_fence(record: &Record, fence: u64) -> Result<(), Refusal> {
    if record.fence == fence { Ok(()) } else { Err(Refusal::Superseded) }
}

/// Whether an operator may [`resolve`] this record at `now`; otherwise the reason. A verdict that denies the effect
/// may have to wait longer: see [`denial_refused_until`].
pub fn may_resolve(record: &Record, now: impl Into<Now>) -> Result<(), Refusal> {
    let now = now.into();
    match record.state {
        // Without a trusted clock, an outcome cannot be dated, so it cannot be stored.
        State::Unknown { .. } if !now.can_claim() => Err(Refusal::ClockNotTrusted),
        State::Unknown { .. } => Ok(()),
        State::Processing { lease_until } => expect_dead_lease(record, lease_until, now),
        _ => Err(Refusal::WrongState),
    }
}

/// The last moment at which an operator's "not applied" is refused, because a silent owner may still act. `None` if
/// it counts as soon as the record [may be resolved](may_resolve), or if there is nothing to resolve.
pub fn denial_refused_until(record: &Record, now: impl Into<Now>) -> Option<Time> {
    let is_open = matches!(record.state, State::Unknown { .. } | State::Processing { .. });
    (is_open && !has_owner_ended(record)).then(|| quiet_until(record, Duration::ZERO, now.into()))
}

/// Whether the owner ended its attempt itself and will not act again. Owners of earlier attempts that ended in doubt
/// may still act.
fn has_owner_ended(record: &Record) -> bool {
    matches!(record.state, State::Unknown { doubt: Doubt::Owner, .. }) && !record.earlier_doubt
}

/// Releases a key for an operator: the next request with it is the next attempt, with any payload.
///
/// Only if nothing took effect; [`may_release`] checks that.
pub fn release(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    may_release(record, stamp.now)?;
    let (outcome, proof, expires_at) = match &record.state {
        State::FailedNotReplayable { outcome, proof, expires_at, .. } => {
            (outcome.clone(), *proof, *expires_at)
        }
        _ => (None, Proof::NeverBegan, stamp.now.at + record.policy.ttl),
    };
    let state = State::FailedNotReplayable { outcome, proof, bound: false, expires_at };
    rules::swap(record, written(record, state, stamp))
}

/// Whether an operator may [`release`] this record's key at `now`; otherwise the reason. Allowed on an expired claim
/// without inherited doubt, and on `FAILED_NOT_REPLAYABLE`.
pub fn may_release(record: &Record, now: impl Into<Now>) -> Result<(), Refusal> {
    let now = now.into();
    match record.state {
        State::Claimed { lease_until } => {
            expect_dead_lease(record, lease_until, now)?;
            if record.earlier_doubt { Err(Refusal::InDoubt) } else { Ok(()) }
        }
        // It would be dated by this clock.
        State::FailedNotReplayable { .. } if !now.can_claim() => Err(Refusal::ClockNotTrusted),
        State::FailedNotReplayable { .. } => Ok(()),
        _ => Err(Refusal::WrongState),
    }
}

fn settled(record: &Record, verdict: Verdict, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    // An outcome dated by a clock that is far behind would look expired as soon as the clock is right again.
    if !stamp.now.can_claim() {
        return Err(Refusal::ClockNotTrusted);
    }
    let expires_at = stamp.now.at + record.policy.ttl;
    let state = match verdict {
        Verdict::Applied(outcome) => {
            let outcome = outcome.unwrap_or_else(|| Outcome::not_retained(Status::Value));
            State::Succeeded { outcome, expires_at }
        }
        Verdict::Failed(outcome) => State::FailedReplayable { outcome, expires_at },
        Verdict::NotApplied { .. } | Verdict::Refused => {
            State::FailedNotReplayable { outcome: None, proof: Proof::Verdict, bound: true, expires_at }
        }
    };
    let mut next = written(record, state, stamp);
    next.earlier_doubt = false;
    rules::swap(record, next)
}
