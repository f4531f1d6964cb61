//! How a record ends: an outcome becomes a tombstone, a tombstone goes.

use super::{Expect, Refusal, Stamp, Write, lease_is_dead, rules, written};
use crate::record::{Record, State};
use crate::time::Time;

/// What a sweeper or reconciler that comes by at some moment should do about a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Nothing yet.
    Nothing,
    /// Its lease is dead: [`lapse`](super::lapse).
    Lapsed,
    /// Its outcome is past its time: [`expire`].
    Expire,
    /// It is as good as gone: [`purge`].
    Purge,
    /// It is time to ask what became of it.
    Probe,
}

/// What is to be done about `record` at `now`.
pub fn due(record: &Record, now: Time) -> Due {
    if record.gone_at().is_some_and(|gone_at| now >= gone_at) {
        return Due::Purge;
    }
    match record.state {
        State::Claimed { lease_until } | State::Processing { lease_until }
            if lease_is_dead(record, lease_until, now) =>
        {
            Due::Lapsed
        }
        State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. }
            if now >= expires_at =>
        {
            Due::Expire
        }
        State::Unknown { next_probe_at: Some(next_probe_at), .. } if now >= next_probe_at => Due::Probe,
        _ => Due::Nothing,
    }
}

/// An outcome past its time becomes a tombstone, which refuses a late retry until it goes itself.
pub fn expire(record: &Record, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let expires_at = record.expires_at().ok_or(Refusal::WrongState)?;
    if stamp.now < expires_at {
        return Err(Refusal::NotBefore(expires_at));
    }
    let until = record.tombstone_until(expires_at);
    rules::swap(record, written(record, State::Expired { until }, stamp))
}

/// What must still stand in the store for the record to be removed: only one that is as good as gone, and
/// only as it was read. What is claimed, running or unknown is never removed.
pub fn purge(record: &Record, now: Time) -> Result<Expect, Refusal> {
    let gone_at = record.gone_at().ok_or(Refusal::WrongState)?;
    if now < gone_at { Err(Refusal::NotBefore(gone_at)) } else { Ok(Expect::unchanged(record)) }
}
