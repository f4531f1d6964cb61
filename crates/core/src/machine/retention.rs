//! How a record ends: an outcome becomes a tombstone, and the tombstone is removed.

use super::dates::{expires_at, gone_at, is_dated_ahead, lease_is_dead, skew};
use super::{Refusal, Stamp, Unchanged, Write, rules, written};
use crate::record::{Record, State};
use crate::time::{Now, Time};

/// What a sweeper or reconciler should do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the caller has to do what is due"]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// Its lease has expired: [`lapse`](super::lapse).
    Lapsed,
    /// Its outcome has expired: [`expire`].
    Expire,
    /// Its retention is over: [`purge`].
    Purge,
    /// A probe is due.
    Probe,
    /// A wrong clock dated it in the future: [`redate`](super::redate).
    Redate,
    /// A tombstone of a time that was replaced since has to last longer: [`extend`].
    Extend,
}

/// What to do with `record` at `now`.
pub fn due(record: &Record, now: impl Into<Now>) -> Due {
    let now = now.into();
    match record.state {
        State::Claimed { lease_until } | State::Processing { lease_until }
            if lease_is_dead(record, lease_until, now) =>
        {
            Due::Lapsed
        }
        State::Unknown { .. } if now.can_judge_leases() && is_dated_ahead(record, now) => Due::Redate,
        State::Unknown { next_probe_at: Some(next_probe_at), .. }
            if now.can_claim() && now.at >= next_probe_at =>
        {
            Due::Probe
        }
        State::Expired { until } if now.at >= until && extended_until(record, now).is_some() => Due::Extend,
        _ if is_removable(record, now) => Due::Purge,
        _ if is_expired(record, now) => Due::Expire,
        _ => Due::Nothing,
    }
}

/// Whether the outcome of a record has expired at `now`. False if the clock is not fully trusted.
#[must_use]
pub fn is_expired(record: &Record, now: impl Into<Now>) -> bool {
    let now = now.into();
    now.can_expire() && expires_at(record, now).is_some_and(|expires_at| now.at >= expires_at)
}

/// Whether the key of a record counts as unused at `now`. False if the clock is not fully trusted.
#[must_use]
pub fn is_gone(record: &Record, now: impl Into<Now>) -> bool {
    let now = now.into();
    now.can_expire() && gone_at(record, now).is_some_and(|gone_at| now.at >= gone_at)
}

/// From when the record may be removed: its retention is over, and its fence is in the past for all nodes, including the
/// clock skew. Otherwise the next attempt with its key, which starts from the time, would have a lower fence than one that
/// a clock ahead had given.
fn removable_at(record: &Record, now: Now) -> Option<Time> {
    let fence_over = Time::from_millis(record.fence) + skew(record, now);
    gone_at(record, now).map(|gone_at| gone_at.max(fence_over))
}

fn is_removable(record: &Record, now: Now) -> bool {
    now.can_expire() && removable_at(record, now).is_some_and(|removable_at| now.at >= removable_at)
}

/// Turns an expired outcome into a tombstone, which refuses late retries until it is removed.
pub fn expire(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let expires_at = expires_at(record, stamp.now).ok_or(Refusal::WrongState)?;
    if !stamp.now.can_expire() {
        return Err(Refusal::ClockNotTrusted);
    }
    if stamp.now.at < expires_at {
        return Err(Refusal::NotBefore(expires_at));
    }
    let until = record.tombstone_until(expires_at);
    rules::swap(record, written(record, State::Expired { until }, stamp))
}

/// Moves the end of a tombstone to where it is judged to be since the time was replaced, and to where the record may be
/// removed, so that the record is not due again before. Never moves it earlier.
pub fn extend(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let State::Expired { .. } = record.state else { return Err(Refusal::WrongState) };
    if !stamp.now.can_judge_leases() {
        return Err(Refusal::ClockNotTrusted);
    }
    let until = extended_until(record, stamp.now).ok_or(Refusal::WrongState)?;
    rules::swap(record, written(record, State::Expired { until }, stamp))
}

/// The end of a tombstone that lasts longer than it was written to last.
fn extended_until(record: &Record, now: Now) -> Option<Time> {
    let State::Expired { until } = record.state else { return None };
    removable_at(record, now).filter(|removable_at| now.can_judge_leases() && *removable_at > until)
}

/// The condition under which the store may remove the record: its retention is over, its fence is in the past, and it is
/// unchanged. Claimed, running and unknown records are never removed.
pub fn purge(record: &Record, now: impl Into<Now>) -> Result<Unchanged, Refusal> {
    let now = now.into();
    let removable_at = removable_at(record, now).ok_or(Refusal::WrongState)?;
    if !now.can_expire() {
        Err(Refusal::ClockNotTrusted)
    } else if now.at < removable_at {
        Err(Refusal::NotBefore(removable_at))
    } else {
        Ok(Unchanged::of(record))
    }
}
