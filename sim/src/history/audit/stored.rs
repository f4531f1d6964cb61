//! Checks the sequence of writes in the store, whatever callers were answered.

use super::erased::{self, erasure};
use super::{Audit, KeyFile, Period, Terminal};
use crate::history::exercised::Exercised;
use crate::history::promise::Promise;
use semel::core::machine::Erasure;
use semel::core::outcome::{Body, Outcome};
use semel::core::policy::{AfterExpiry, Class, Policy};
use semel::core::record::{Doubt, Record, State, StateName};
use semel::core::time::Time;
use std::time::Duration;

impl Audit {
    /// A write was applied: this is the new entry.
    pub(crate) fn stored(&mut self, at: u64, now: Time, key: usize, next: Option<&Record>, by: &str) {
        let text = match next {
            Some(record) => format!("    store: {} by {by}", line(record)),
            None => format!("    store: removed by {by}"),
        };
        self.note(at, Some(key), text);
        let (skew, has_two_clocks, file) = (self.skew, self.has_two_clocks, &self.keys[key]);
        let verdict = if file.damaged {
            Err((Promise::NothingForgotten, "an unreadable record was overwritten".to_owned()))
        } else {
            step(file, next, now, skew, has_two_clocks)
        };
        let verdict =
            verdict.and_then(|period| next.map_or(Ok(()), |next| is_dated(next, now)).map(|()| period));
        let period = match verdict {
            Ok(period) => period,
            Err((promise, how)) => return self.broken(promise, Some(key), how),
        };
        self.exercise(key, next, period);
        let erased = self.keys[key].current.as_ref().zip(next).and_then(|(old, next)| erasure(old, next));
        let payload =
            next.and_then(|record| self.fingerprints.iter().position(|known| *known == record.fingerprint()));
        let outcome = match next.and_then(outcome_of).map(|outcome| self.opened(key, outcome)).transpose() {
            Ok(outcome) => outcome,
            Err(how) => return self.broken(Promise::Sealed, Some(key), how),
        };
        let (ring, file) = (self.ring, &mut self.keys[key]);
        if period == Some(Begins::Period) {
            file.periods.push(Period::default());
        }
        if let Some(what) = erased {
            file.is_erased(at, what);
        }
        if let Some(record) = next {
            file.fences.entry(record.fence()).or_insert(file.periods.len() - 1);
            let state = record.state_name();
            let is_final = matches!(state, StateName::Succeeded | StateName::FailedReplayable);
            if let (Some(expires_at), Some(outcome), true) = (record.expires_at(), outcome, is_final) {
                let (period, was_answered) = (file.periods.len() - 1, false);
                let erased_at = None;
                file.terminals.push(Terminal {
                    period,
                    payload,
                    outcome,
                    state,
                    expires_at,
                    was_answered,
                    ring,
                    erased_at,
                });
            }
        }
        // A tombstone has no payload, so it matches every payload.
        let payload = if erased == Some(Erasure::Record) {
            file.bound.last().and_then(|(_, bound)| *bound)
        } else {
            payload
        };
        if file.bound.last().is_none_or(|(_, bound)| *bound != payload) {
            file.bound.push((at, payload));
        }
        file.current = next.cloned();
        let record_count = self.keys.iter().filter(|file| file.current.is_some()).count() as u64;
        if let Some(cap) = self.cap.filter(|cap| record_count > *cap) {
            self.broken(
                Promise::CapHolds,
                Some(key),
                format!("{record_count} records, but the cap is {cap}"),
            );
        }
    }

    /// An outcome before it was sealed. If outcomes are sealed, none may be stored unsealed.
    fn opened(&mut self, key: usize, outcome: &Outcome) -> Result<Outcome, String> {
        let Some(master) = &self.master else { return Ok(outcome.clone()) };
        match outcome.body {
            Body::Kept(_) => return Err("an outcome is stored unsealed".to_owned()),
            Body::Sealed(_) => self.tally.count(Exercised::Sealed),
            Body::NotRetained => {}
        }
        master.open(&self.ids[key], outcome).map_err(|why| why.to_string())
    }

    fn exercise(&mut self, key: usize, next: Option<&Record>, begins: Option<Begins>) {
        let old = self.keys[key].current.as_ref();
        let was = old.map(Record::state_name);
        let periods = self.keys[key].periods.len();
        let tally = &mut self.tally;
        let Some(record) = next else { return tally.count(Exercised::Removed) };
        if begins.is_some() {
            tally.count(Exercised::Claim);
        }
        if begins == Some(Begins::Period) && periods > 0 {
            tally.count(Exercised::Reuse);
        }
        if begins == Some(Begins::Attempt) && matches!(was, Some(StateName::Processing | StateName::Unknown))
        {
            tally.count(Exercised::TakeOver);
        }
        match old.and_then(|old| erasure(old, record)) {
            Some(Erasure::Response) => return tally.count(Exercised::ErasedResponse),
            Some(Erasure::Record) => return tally.count(Exercised::ErasedRecord),
            None => {}
        }
        match (was, record.state()) {
            (Some(StateName::Claimed), State::Processing { .. }) => tally.count(Exercised::Reserved),
            (Some(StateName::Processing), State::Unknown { doubt: Doubt::Lapsed, .. }) => {
                tally.count(Exercised::Lapsed);
            }
            (_, State::Expired { .. }) => tally.count(Exercised::Tombstone),
            (Some(StateName::Unknown), State::Succeeded { .. } | State::FailedReplayable { .. }) => {
                let by_owner = record.owner_wrote_at() == record.updated_at();
                tally.count(if by_owner { Exercised::LateFinish } else { Exercised::Reconciled });
            }
            (Some(StateName::Unknown), State::FailedNotReplayable { .. }) => {
                tally.count(Exercised::NotApplied);
            }
            _ => {}
        }
    }
}

pub(super) fn outcome_of(record: &Record) -> Option<&Outcome> {
    match record.state() {
        State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
        State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
        _ => None,
    }
}

/// No lease is longer, with its skew.
const LEASE_MAX: Duration = Duration::from_secs(10);

/// No write arrives later than this after its date.
const UNDER_WAY_MAX: Duration = Duration::from_secs(45);

/// Whether a record is dated near the time of its write, whatever the clock shows.
fn is_dated(record: &Record, now: Time) -> Result<(), (Promise, String)> {
    let is_near = |date: Time| date < now + UNDER_WAY_MAX && now < date + UNDER_WAY_MAX;
    if is_near(record.updated_at()) {
        Ok(())
    } else {
        Err((Promise::TrueDates, format!("dated {:?} at {now:?}", record.updated_at())))
    }
}

/// What a write starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    Period,
    Attempt,
}

type Step = Result<Option<Begins>, (Promise, String)>;

/// Whether `next` may replace the current entry, and what that starts.
fn step(file: &KeyFile, next: Option<&Record>, now: Time, skew: Duration, has_two_clocks: bool) -> Step {
    // No lease that a right clock grants ends as late: it was granted by a clock that is ahead, and counts as ended.
    let is_ahead = |moment: Time| has_two_clocks && moment > now + LEASE_MAX;
    let grows = |file: &KeyFile, next: &Record| match file.fences.last_key_value() {
        // So does its fence, which a right clock reaches only later.
        Some((highest, _)) if has_two_clocks && Time::from_millis(*highest) > now => Ok(()),
        _ => grows(file, next),
    };
    let is_past = |moment: Option<Time>| moment.is_some_and(|moment| now + skew >= moment);
    let forgotten = |what: &str| Err((Promise::NothingForgotten, what.to_owned()));
    let (old, next) = match (&file.current, next) {
        (None, None) => return forgotten("removed an absent entry"),
        (Some(old), None) if is_past(gone_at(old, &file.policy)) => return Ok(None),
        (Some(old), None) => return forgotten(&format!("removed too early: {}", line(old))),
        (None, Some(next)) if next.attempt() == 1 && next.version() == 1 => {
            // A claim that arrives after its lease sends nothing, so no fence has to stop it.
            let alive = next.due_at().is_some_and(|due_at| now < due_at);
            if alive {
                grows(file, next)?;
            }
            return Ok(Some(Begins::Period));
        }
        (None, Some(_)) => return forgotten("inserted, but not as a first version"),
        (Some(old), Some(next)) => (old, next),
    };
    if next.version() <= old.version() && next.token() != old.token() {
        return forgotten(&format!("overwritten, not swapped: {} by {}", line(old), line(next)));
    }
    if next.version() != old.version() + 1 {
        return Err((Promise::FinalIsFinal, format!("{} does not follow {}", line(next), line(old))));
    }
    if next.token() == old.token() {
        let continued = match erasure(old, next) {
            Some(what) => erased::is_sound(file, what, old, next),
            None => continues(old, next, now, skew),
        };
        return continued.map(|()| None);
    }
    grows(file, next)?;
    if next.attempt() == 1 {
        let legal = is_past(gone_at(old, &file.policy));
        return if legal { Ok(Some(Begins::Period)) } else { forgotten("reused too early") };
    }
    let legal = match old.state() {
        State::FailedNotReplayable { .. } => true,
        State::Claimed { lease_until } if !old.earlier_doubt() => {
            is_past(Some(*lease_until)) || is_ahead(*lease_until)
        }
        State::Claimed { lease_until } | State::Processing { lease_until } => {
            let is_over = is_past(Some(*lease_until)) || is_ahead(*lease_until);
            file.policy.class == Class::Downstream && is_over
        }
        State::Unknown { .. } => file.policy.class == Class::Downstream,
        State::Succeeded { .. } | State::FailedReplayable { .. } | State::Expired { .. } => {
            return Err((Promise::FinalIsFinal, format!("an attempt over {}", line(old))));
        }
    };
    if legal { Ok(Some(Begins::Attempt)) } else { forgotten(&format!("an attempt over {}", line(old))) }
}

/// Whether the record of the same attempt may change like this.
fn continues(old: &Record, next: &Record, now: Time, skew: Duration) -> Result<(), (Promise, String)> {
    let final_one =
        matches!(old.state_name(), StateName::Succeeded | StateName::FailedReplayable | StateName::Expired);
    let expires = old.expires_at().is_some_and(|expires_at| now + skew >= expires_at)
        && next.state_name() == StateName::Expired;
    let is_extended = match (old.state(), next.state()) {
        (State::Expired { until: old }, State::Expired { until }) => until > old,
        _ => false,
    };
    if final_one && !expires && !is_extended {
        return Err((Promise::FinalIsFinal, format!("{} became {}", line(old), line(next))));
    }
    if next.fence() != old.fence() {
        return Err((Promise::FenceGrows, "the fence changed within an attempt".to_owned()));
    }
    Ok(())
}

fn grows(file: &KeyFile, next: &Record) -> Result<(), (Promise, String)> {
    match file.fences.last_key_value() {
        Some((highest, _)) if next.fence() <= *highest => {
            Err((Promise::FenceGrows, format!("fence {} after {highest}", next.fence())))
        }
        _ => Ok(()),
    }
}

/// When the record may be removed, by the policy of its key.
pub(super) fn gone_at(record: &Record, policy: &Policy) -> Option<Time> {
    match record.state() {
        State::Succeeded { expires_at, .. } | State::FailedReplayable { expires_at, .. } => {
            let refuses = policy.after_expiry == AfterExpiry::Refuse;
            Some(*expires_at + if refuses { policy.tombstone } else { Duration::ZERO })
        }
        State::FailedNotReplayable { expires_at, .. } => Some(*expires_at),
        State::Expired { until } => Some(*until),
        State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => None,
    }
}

/// A record on one line.
pub(super) fn line(record: &Record) -> String {
    let (state, version, attempt) = (record.state_name(), record.version(), record.attempt());
    format!("{state} v{version} attempt {attempt} fence {} {:?}", record.fence(), record.token())
}
