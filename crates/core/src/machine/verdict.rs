//! What others do about an attempt whose owner is gone: mark it, ask about it, settle it, let go of it.

use super::dates::{expect_dead_lease, expect_quiet_over, is_dated_ahead, is_owner_ahead, quiet_until};
use super::{Refusal, Stamp, Write, rules, written};
use crate::outcome::{Outcome, Status};
use crate::policy::Class;
use crate::record::{Doubt, Proof, Record, State};
use crate::time::{Now, Time};
use std::time::Duration;

/// What somebody found out about an effect in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It happened. Without an outcome, later requests learn that it did and that its answer was not kept.
    Applied(Option<Outcome>),
    /// It was refused for good, with this answer. (That the answer reads as a refusal is for the API to see to.)
    Failed(Outcome),
    /// It was not there at the moment `asked_at`. Counts only if the owner could no longer act by then: what
    /// counts is when the question was *put*, since the effect may have arrived while the answer travelled. (A
    /// question from the future counts as put now.)
    NotApplied {
        /// When the effect's own system was asked, by the store's clock.
        asked_at: Time,
    },
    /// It did not happen and never will: its own system has been told to refuse this operation id for good.
    Refused,
}

/// What a dead lease comes to. `PROCESSING` is marked `UNKNOWN`, and so is a claim that inherited the doubt of
/// an earlier attempt. What cannot have had an effect, a claim that never began or a `local` transaction that
/// never committed, becomes not replayable.
pub fn lapse(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let (State::Claimed { lease_until } | State::Processing { lease_until }) = record.state else {
        return Err(Refusal::WrongState);
    };
    expect_dead_lease(record, lease_until, stamp.now)?;
    let begun = matches!(record.state, State::Processing { .. }) && record.policy.class != Class::Local;
    let next = if begun || record.earlier_doubt {
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
    let mut next = written(record, state, stamp);
    if is_owner_ahead(record, stamp.now) {
        next.owner_wrote_at = now;
    }
    next
}

/// Brings a record that a wrong clock dated ahead back to the present. An `UNKNOWN` one begins its quiet period now,
/// and it is time to ask about it; one whose owner is gone [lapses](lapse).
///
/// Without this, nobody could say that nothing happened before that far date has come.
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

/// A reconciler's verdict on an `UNKNOWN` record.
///
/// "It happened" counts at once. "It is not there" counts only after the quiet period, counted from the
/// owner's last stored write: until then a paused owner may still act, or its effect still arrive.
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
/// # use semel_core::machine::{Begin, Decision, Found, Ticket, decide};
/// # let (payload, token) = (Fingerprint::from_bytes([5; 32]), Token::from_random(7));
/// # let ticket = Ticket { token, begin: Begin::Processing };
/// # let Decision::Run(claim) = decide(Found::Nothing, &command(&payload), ticket, stamp(0)) else { panic!() };
/// let record = claim.next; // PROCESSING, claimed at the moment 0; its owner is not heard of again
/// let quiet = record.policy().quiet().as_millis() as u64;
/// let lost = lapse(&record, stamp(30_000))?.next;
/// assert_eq!(lost.state_name(), StateName::Unknown);
/// // The provider knows nothing of it. That is no proof yet:
/// let absent = |asked_at| Verdict::NotApplied { asked_at: Time::from_millis(asked_at) };
/// assert!(matches!(reconcile(&lost, absent(quiet), stamp(quiet)), Err(Refusal::QuietUntil(_))));
/// let settled = reconcile(&lost, absent(quiet + 1), stamp(quiet + 1))?.next;
/// assert_eq!(settled.state_name(), StateName::FailedNotReplayable);
/// # Ok::<(), Refusal>(())
/// ```
pub fn reconcile(record: &Record, verdict: Verdict, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    reconcile_after(record, Duration::ZERO, verdict, stamp)
}

/// What [`reconcile`] says of an effect that may take longer to show: "it is not there" counts only after a quiet
/// period of at least `quiet_min`.
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

/// A reconciler asked and learnt nothing: it will ask again at `next_probe_at`, or leave it to an operator.
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

/// An operator's verdict on an `UNKNOWN` record, or on a `PROCESSING` one whose lease is dead: where [`may_resolve`]
/// says so.
///
/// Where the owner did not end the attempt itself, a verdict that denies the effect has to wait for the quiet
/// period: no operator can know what a paused owner will do.
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

/// Whether an operator may [`resolve`] this record at `now`, and why not, where not. A verdict that denies the effect
/// may have to wait longer: [`denial_refused_until`].
pub fn may_resolve(record: &Record, now: impl Into<Now>) -> Result<(), Refusal> {
    let now = now.into();
    match record.state {
        // An outcome that cannot be dated cannot be stored.
        State::Unknown { .. } if !now.can_claim() => Err(Refusal::ClockNotTrusted),
        State::Unknown { .. } => Ok(()),
        State::Processing { lease_until } => expect_dead_lease(record, lease_until, now),
        _ => Err(Refusal::WrongState),
    }
}

/// The last moment at which an operator's word that the effect did not happen is refused, since a silent owner may
/// still act. `None` where it counts as soon as the record [may be resolved](may_resolve), or there is nothing to
/// resolve.
pub fn denial_refused_until(record: &Record, now: impl Into<Now>) -> Option<Time> {
    let is_open = matches!(record.state, State::Unknown { .. } | State::Processing { .. });
    (is_open && !has_owner_ended(record)).then(|| quiet_until(record, Duration::ZERO, now.into()))
}

/// Whether the owner ended its attempt itself and will not act again. Of the owners of earlier attempts that ended in
/// doubt nothing was heard.
fn has_owner_ended(record: &Record) -> bool {
    matches!(record.state, State::Unknown { doubt: Doubt::Owner, .. }) && !record.earlier_doubt
}

/// An operator lets go of a key: the next request with it is the next attempt, whatever its payload.
///
/// Only where nothing took effect: where [`may_release`] says so.
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

/// Whether an operator may [`release`] this record's key at `now`, and why not, where not: on a dead claim that
/// inherited no doubt, or on `FAILED_NOT_REPLAYABLE`.
pub fn may_release(record: &Record, now: impl Into<Now>) -> Result<(), Refusal> {
    match record.state {
        State::Claimed { lease_until } => {
            expect_dead_lease(record, lease_until, now.into())?;
            if record.earlier_doubt { Err(Refusal::InDoubt) } else { Ok(()) }
        }
        State::FailedNotReplayable { .. } => Ok(()),
        _ => Err(Refusal::WrongState),
    }
}

fn settled(record: &Record, verdict: Verdict, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    // An outcome dated by a clock that is far behind would look long expired as soon as that is right again.
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
