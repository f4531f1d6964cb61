//! What a record's dates mean at a moment: whether a lease is dead, a quiet period over, a repeat still safe.
//!
//! Contents: every comparison of a record's dates with the present that is not about retention. Nobody else does
//! arithmetic with leases.

use super::Refusal;
use crate::policy::{Class, Policy};
use crate::record::{Record, State};
use crate::time::{Now, Time};
use std::time::Duration;

/// Whether the owner of this record is taken to be gone: its lease has run out for everybody, clock differences
/// allowed for. False for a record that nobody owns.
///
/// A lease that ends later than any lease granted by now can end was dated by a wrong clock, and is dead too.
/// Where time had a gap, an owner that dated its lease before it has the length of a lease to renew it.
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
    now.can_judge_leases() && now.at >= dead_from(record, lease_until, now)
}

/// From when on the owner is taken to be gone, by what is known at `now`.
fn dead_from(record: &Record, lease_until: Time, now: Now) -> Time {
    let (lease, skew) = (record.policy.lease, skew(record, now));
    let is_ahead = lease_until > now.latest + lease + skew;
    let lapsed_from = if is_ahead { now.at } else { lease_until + skew };
    let is_dated_since = |since| record.owner_wrote_at >= since && !is_owner_ahead(record, now);
    match now.steady_since {
        Some(since) if !is_dated_since(since) => lapsed_from.max(since + lease + skew),
        _ => lapsed_from,
    }
}

/// Nothing, where the lease is dead; otherwise why it cannot be said to be.
pub(super) fn expect_dead_lease(record: &Record, lease_until: Time, now: Now) -> Result<(), Refusal> {
    if lease_is_dead(record, lease_until, now) {
        Ok(())
    } else if now.can_judge_leases() {
        Err(Refusal::LeaseAlive(dead_from(record, lease_until, now)))
    } else {
        Err(Refusal::ClockNotTrusted)
    }
}

/// Whether the owner's last write has a date that has not come yet.
pub(super) fn is_owner_ahead(record: &Record, now: Now) -> bool {
    now.is_before(record.owner_wrote_at, record.policy.skew)
}

/// The last moment of the quiet period: until it is over, a silent owner may still act, or its effect still arrive.
/// It is never shorter than `quiet_min`.
///
/// Where the owner's last write is dated ahead, it counts as made now, as [`redate`](super::redate) has it.
pub(super) fn quiet_until(record: &Record, quiet_min: Duration, now: Now) -> Time {
    let policy = &record.policy;
    let wrote_at = if is_owner_ahead(record, now) { now.at } else { record.owner_wrote_at };
    let silent_since = now.steady_since.map_or(wrote_at, |since| wrote_at.max(since));
    let quiet = policy.lease.saturating_add(policy.work_deadline).saturating_add(skew(record, now));
    silent_since + quiet.max(quiet_min)
}

/// Nothing, where absence that was seen at `asked_at` proves that the effect never happened.
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

/// Whether an effect in doubt may be sent again at `now`: so early that it arrives while the downstream system
/// still remembers the very first attempt. Never where nobody knows how long ago that was.
pub(super) fn is_repeat_open(record: &Record, now: Now) -> bool {
    now.can_claim() && is_age_known(record, now) && now.at < repeat_before(record, now)
}

/// Whether the date of the first attempt tells how long ago it was: it has come, and no other time can have given it.
pub(super) fn is_age_known(record: &Record, now: Now) -> bool {
    let created_at = record.created_at;
    let is_since = now.replaced_at.is_none_or(|replaced_at| created_at >= replaced_at);
    let is_beyond = now.replaced_up_to.is_none_or(|up_to| created_at > up_to);
    is_since && is_beyond && !is_first_ahead(record, now)
}

/// Whether the first attempt has a date that has not come yet.
fn is_first_ahead(record: &Record, now: Now) -> bool {
    now.is_before(record.created_at, record.policy.skew)
}

/// The date of the first attempt for anyone who writes the record at `now`. One that has not come yet is replaced by
/// one so long ago that the downstream system may have forgotten it: how long ago it was, nobody knows.
pub(super) fn first_date(record: &Record, now: Now) -> Time {
    if is_first_ahead(record, now) { now.at - record.policy.dedup_window } else { record.created_at }
}

/// Whether a wrong clock dated this unsettled record ahead: a moment that has not come yet stands in it.
#[must_use]
pub fn is_dated_ahead(record: &Record, now: impl Into<Now>) -> bool {
    let now = now.into();
    let is_settled =
        !matches!(record.state, State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. });
    let is_ahead = |date: Time| now.is_before(date, record.policy.skew);
    !is_settled && [record.created_at, record.owner_wrote_at, record.updated_at].into_iter().any(is_ahead)
}

/// By how much the last write of a record is dated ahead of `now`, where that is more than clocks may differ by: a
/// clock was wrong then, or is now.
pub fn written_ahead_by(record: &Record, now: impl Into<Now>) -> Option<Duration> {
    let now = now.into();
    let is_ahead = now.is_before(record.updated_at, record.policy.skew);
    is_ahead.then(|| record.updated_at.since(now.at))
}

/// When the last repeat is safe: before this moment.
pub(super) fn repeat_before(record: &Record, now: Now) -> Time {
    (record.created_at + record.policy.dedup_window) - attempt_max(&record.policy, now)
}

/// For how long after the first attempt a retry may settle a doubt by repeating the effect, under this policy: a
/// repeat has to arrive while the downstream system still remembers the first. `None` where no record's time decides
/// that: class `external` never allows it, class `local` always.
///
/// What may be done with one record is for [`may_repeat`](super::may_repeat) to say.
pub fn repeat_within(policy: &Policy, now: impl Into<Now>) -> Option<Duration> {
    match policy.class {
        Class::Downstream => Some(policy.dedup_window.saturating_sub(attempt_max(policy, now.into()))),
        Class::External | Class::Local => None,
    }
}

/// The longest that one attempt takes to arrive, by any clock.
fn attempt_max(policy: &Policy, now: Now) -> Duration {
    policy.work_deadline.saturating_add(now.skew.max(policy.skew))
}

/// Until when the stored outcome is replayed, if there is one. Where the time was replaced since it was dated, it is
/// kept for its whole time from then.
pub fn expires_at(record: &Record, now: impl Into<Now>) -> Option<Time> {
    let expires_at = record.expires_at()?;
    let replaced_at = now.into().replaced_at.filter(|replaced_at| record.updated_at < *replaced_at);
    Some(replaced_at.map_or(expires_at, |replaced_at| expires_at.max(replaced_at + record.policy.ttl)))
}

/// From when on the key is as free as one never seen.
pub fn gone_at(record: &Record, now: impl Into<Now>) -> Option<Time> {
    match expires_at(record, now) {
        Some(expires_at) => Some(record.tombstone_until(expires_at)),
        None => record.gone_at(),
    }
}

/// By how much the clock that dated the record and the one that judges may differ.
pub(super) fn skew(record: &Record, now: Now) -> Duration {
    now.skew.max(record.policy.skew)
}
