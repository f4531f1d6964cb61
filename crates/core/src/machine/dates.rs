//! What a record's dates mean at a moment: whether a lease has expired, a quiet period is over, a repeat is still
//! safe.
//!
//! Every comparison of a record's dates with the current time, except retention. No other module calculates with
//! leases.

use super::Refusal;
use crate::policy::{Class, Policy};
use crate::record::{Record, State};
use crate::time::{Now, Time};
use std::time::Duration;

/// Whether the owner of this record counts as gone: its lease has expired for all nodes, including the clock skew.
/// False for a record without an owner.
///
/// A lease that ends later than any lease granted now can end was dated by a wrong clock, and counts as expired too.
/// If time had a gap, an owner with an older lease has one lease period to renew it.
#[must_use]
pub fn is_lease_dead(record: &Record, now: impl Into<Now>) -> bool {
    match record.state {
        State::Claimed { lease_until } | State::Processing { lease_until } => {
            lease_is_dead(record, lease_until, now.into())
        }
        _ => false,
    }
}

pub(super) fn lease_is_dead(record: &Record, lease_until: Time, now: Now) -> bool {
    can_judge_lease(record, lease_until, now) && now.at >= dead_from(record, lease_until, now)
}

fn can_judge_lease(record: &Record, lease_until: Time, now: Now) -> bool {
    let is_confirmed = now.can_claim() && now.is_ahead_wrong;
    now.can_judge_leases() || is_confirmed && is_lease_ahead(record, lease_until, now)
}

/// Whether the lease ends later than any lease granted now can end.
fn is_lease_ahead(record: &Record, lease_until: Time, now: Now) -> bool {
    lease_until > now.latest + record.policy.lease + skew(record, now)
}

/// From when the owner counts as gone, as known at `now`.
fn dead_from(record: &Record, lease_until: Time, now: Now) -> Time {
    let (lease, skew) = (record.policy.lease, skew(record, now));
    let lapsed_from = if is_lease_ahead(record, lease_until, now) { now.at } else { lease_until + skew };
    let is_dated_since = |since| record.owner_wrote_at >= since && !is_owner_ahead(record, now);
    match now.steady_since {
        Some(since) if !is_dated_since(since) => lapsed_from.max(since + lease + skew),
        _ => lapsed_from,
    }
}

/// `Ok` if the lease has expired; otherwise why it cannot be judged so.
pub(super) fn expect_dead_lease(record: &Record, lease_until: Time, now: Now) -> Result<(), Refusal> {
    if lease_is_dead(record, lease_until, now) {
        Ok(())
    } else if can_judge_lease(record, lease_until, now) {
        Err(Refusal::LeaseAlive(dead_from(record, lease_until, now)))
    } else {
        Err(Refusal::ClockNotTrusted)
    }
}

/// Whether the owner's last write is dated in the future.
pub(super) fn is_owner_ahead(record: &Record, now: Now) -> bool {
    now.is_before(record.owner_wrote_at, record.policy.skew)
}

/// The last moment of the quiet period: until it is over, a silent owner may still act, or its effect may still
/// arrive. The period is at least `quiet_min`.
///
/// An owner's write with a date in the future counts as made now, as in [`redate`](super::redate).
pub(super) fn quiet_until(record: &Record, quiet_min: Duration, now: Now) -> Time {
    let policy = &record.policy;
    let wrote_at = if is_owner_ahead(record, now) { now.at } else { record.owner_wrote_at };
    let silent_since = now.steady_since.map_or(wrote_at, |since| wrote_at.max(since));
    let quiet = policy.lease.saturating_add(policy.work_deadline).saturating_add(skew(record, now));
    silent_since + quiet.max(quiet_min)
}

/// `Ok` if absence at `asked_at` proves that the effect never happened.
pub(super) fn expect_quiet_over(
    record: &Record,
    quiet_min: Duration,
    asked_at: Time,
    now: Now,
) -> Result<(), Refusal> {
    if !now.can_judge_leases() {
        return Err(Refusal::ClockNotTrusted);
    }
    let quiet_until = quiet_until(record, quiet_min, now);
    if asked_at.min(now.at) > quiet_until { Ok(()) } else { Err(Refusal::QuietUntil(quiet_until)) }
}

/// Whether an effect in doubt may be sent again at `now`: it must arrive while the downstream system still remembers
/// the first attempt. False if the age of the first attempt is not known.
pub(super) fn is_repeat_open(record: &Record, now: Now) -> bool {
    now.can_claim() && is_age_known(record, now) && now.at < repeat_before(record, now)
}

/// Whether the age of the first attempt is known: its date is in the past, and not from a replaced time.
pub(super) fn is_age_known(record: &Record, now: Now) -> bool {
    let created_at = record.created_at;
    let is_since = now.replaced_at.is_none_or(|replaced_at| created_at >= replaced_at);
    let is_beyond = now.replaced_up_to.is_none_or(|up_to| created_at > up_to);
    is_since && is_beyond && !is_first_ahead(record, now)
}

/// Whether the first attempt is dated in the future.
fn is_first_ahead(record: &Record, now: Now) -> bool {
    now.is_before(record.created_at, record.policy.skew)
}

/// The date of the first attempt to write at `now`. A date in the future is replaced by one so old that the
/// downstream system may have forgotten the attempt, because its real age is not known.
pub(super) fn first_date(record: &Record, now: Now) -> Time {
    if is_first_ahead(record, now) { now.at - record.policy.dedup_window } else { record.created_at }
}

/// Whether a wrong clock dated this unresolved record in the future.
#[must_use]
pub fn is_dated_ahead(record: &Record, now: impl Into<Now>) -> bool {
    let now = now.into();
    let is_settled =
        !matches!(record.state, State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. });
    let is_ahead = |date: Time| now.is_before(date, record.policy.skew);
    !is_settled && [record.created_at, record.owner_wrote_at, record.updated_at].into_iter().any(is_ahead)
}

/// How far the last write of a record is dated ahead of `now`, if that is more than clocks may differ: the clock was
/// wrong then, or is wrong now.
pub fn written_ahead_by(record: &Record, now: impl Into<Now>) -> Option<Duration> {
    let now = now.into();
    let is_ahead = now.is_before(record.updated_at, record.policy.skew);
    is_ahead.then(|| record.updated_at.since(now.at))
}

/// A repeat is safe only before this moment.
pub(super) fn repeat_before(record: &Record, now: Now) -> Time {
    (record.created_at + record.policy.dedup_window) - attempt_max(&record.policy, now)
}

/// How long after the first attempt a retry may resolve a doubt by repeating the effect, under this policy: the
/// repeat has to arrive while the downstream system still remembers the first attempt. `None` if time does not
/// decide: class `external` never allows it, class `local` always.
///
/// For a single record, ask [`may_repeat`](super::may_repeat).
pub fn repeat_within(policy: &Policy, now: impl Into<Now>) -> Option<Duration> {
    match policy.class {
        Class::Downstream => Some(policy.dedup_window.saturating_sub(attempt_max(policy, now.into()))),
        Class::External | Class::Local => None,
    }
}

/// The longest time that one attempt takes to arrive, by any clock.
fn attempt_max(policy: &Policy, now: Now) -> Duration {
    policy.work_deadline.saturating_add(now.skew.max(policy.skew))
}

/// Until when the stored outcome is replayed, if there is one. If the time was replaced after the outcome was dated,
/// the full ttl counts from the replacement.
pub fn expires_at(record: &Record, now: impl Into<Now>) -> Option<Time> {
    let expires_at = record.expires_at()?;
    let replaced_at = now.into().replaced_at.filter(|replaced_at| record.updated_at < *replaced_at);
    Some(replaced_at.map_or(expires_at, |replaced_at| expires_at.max(replaced_at + record.policy.ttl)))
}

/// From when the key counts as unused. If the time was replaced after the record was dated, an outcome and a tombstone
/// are each kept for their full length from the replacement.
pub fn gone_at(record: &Record, now: impl Into<Now>) -> Option<Time> {
    let now = now.into();
    match (expires_at(record, now), &record.state) {
        (Some(expires_at), _) => Some(record.tombstone_until(expires_at)),
        (None, State::Expired { until }) => Some(tombstone_end(record, *until, now)),
        (None, _) => record.gone_at(),
    }
}

/// When a tombstone that was written to last until `until` ends.
fn tombstone_end(record: &Record, until: Time, now: Now) -> Time {
    let Some(replaced_at) = now.replaced_at.filter(|replaced_at| record.updated_at < *replaced_at) else {
        return until;
    };
    // The tombstone of an erased outcome was to last longer than the policy says: for the rest of the outcome's ttl too.
    let intended = replaced_at + until.since(record.updated_at);
    until.max(record.tombstone_until(replaced_at)).max(intended)
}

/// How much the clock that dated the record and the current one may differ.
pub(super) fn skew(record: &Record, now: Now) -> Duration {
    now.skew.max(record.policy.skew)
}
