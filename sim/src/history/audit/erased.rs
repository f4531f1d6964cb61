//! Recognises erasures among the writes, and checks what an erasure must not change.

use super::stored::{gone_at, line, outcome_of};
use super::{Audit, KeyFile, Terminal};
use crate::history::promise::Promise;
use semel::core::machine::Erasure;
use semel::core::outcome::Body;
use semel::core::record::{Record, State};
use semel::core::time::Time;
use std::time::Duration;

/// Which erasure turns `old` into `next`, if one does.
pub(super) fn erasure(old: &Record, next: &Record) -> Option<Erasure> {
    if next.token() != old.token() || next.version() != old.version() + 1 {
        return None;
    }
    let is_expiry = matches!(next.state(), State::Expired { .. }) && next.fingerprint() == old.fingerprint();
    match (old.state(), next.state()) {
        (_, State::Expired { .. }) if !is_expiry => Some(Erasure::Record),
        (State::Succeeded { .. }, State::Succeeded { .. })
        | (State::FailedReplayable { .. }, State::FailedReplayable { .. })
        | (
            State::FailedNotReplayable { outcome: Some(_), .. },
            State::FailedNotReplayable { outcome: None, .. },
        ) => Some(Erasure::Response),
        _ => None,
    }
}

/// Whether an erasure was requested, and changes nothing that decides about the key.
pub(super) fn is_sound(
    file: &KeyFile,
    what: Erasure,
    old: &Record,
    next: &Record,
) -> Result<(), (Promise, String)> {
    let broken =
        |why: &str| Err((Promise::FinalIsFinal, format!("{} became {}: {why}", line(old), line(next))));
    let status = |record: &Record| outcome_of(record).map(|outcome| outcome.status);
    if !file.erasing.contains(&what) {
        return broken("no erasure was requested");
    }
    if !next.labels().is_empty() || outcome_of(next).is_some_and(|outcome| outcome.body != Body::NotRetained)
    {
        return broken("some content is left");
    }
    if gone_at(old, &file.policy) != gone_at(next, &file.policy) {
        return broken("the key's release date has changed");
    }
    let is_same = what == Erasure::Record
        || old.fingerprint() == next.fingerprint()
            && old.expires_at() == next.expires_at()
            && (outcome_of(next).is_none() || status(old) == status(next));
    if is_same { Ok(()) } else { broken("more than the response has changed") }
}

impl KeyFile {
    /// Whether anything was erased in this period.
    pub(super) fn has_erasure(&self, period: usize) -> bool {
        self.periods[period].is_erased
            || self.terminals.iter().any(|terminal| terminal.period == period && terminal.erased_at.is_some())
    }

    /// Marks the record as erased.
    pub(super) fn is_erased(&mut self, at: u64, what: Erasure) {
        let period = self.periods.len() - 1;
        for terminal in self.terminals.iter_mut().filter(|terminal| terminal.period == period) {
            terminal.erased_at.get_or_insert(at);
        }
        self.periods[period].is_erased |= what == Erasure::Record;
    }
}

impl Terminal {
    /// Whether a caller who asks at `asked` must no longer get it.
    pub(super) fn is_forgotten(&self, asked: u64, after: Duration) -> bool {
        let nanos = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        self.erased_at.is_some_and(|erased_at| asked > erased_at.saturating_add(nanos))
    }
}

impl Audit {
    /// Whether a key may be answered as expired before its time: only its tombstone is left.
    pub(super) fn is_tombstone(&self, key: usize, now: Time) -> bool {
        let file = &self.keys[key];
        let past = file.terminals.iter().any(|terminal| terminal.expires_at <= now + self.skew);
        past || file.periods.iter().any(|period| period.is_erased)
    }
}
