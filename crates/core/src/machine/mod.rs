//! The state machine: every transition of a record, each a pure function from record to record.
//!
//! All decisions of Semel are made here. A store swaps records, a transport speaks a protocol, the engine runs work;
//! only this module decides what they *mean*. There is no I/O, clock or randomness: the moment and the token are
//! arguments, so a model checker can explore every order of events with this code.
//!
//! The [crate's front page](crate#the-states) has a diagram of the states and transitions.
//!
//! Three principles hold everywhere:
//!
//! 1. A write names the version, the token and the state of the record that it was computed from ([`Expect`]). The
//!    store applies it only if all three are unchanged, so a stale worker changes nothing.
//! 2. A final outcome changes only at the end of its retention, or when an operator erases its response. A tombstone's
//!    end only moves later.
//! 3. If nobody can prove what happened, the state is `UNKNOWN`. Only an outcome, a verdict, or (if the downstream
//!    system deduplicates) another attempt leads out of it.
//!
//! Every transition checks these principles, as far as an old record and its successor show them: [`Rule`].
//!
//! The files: [`decide`] and [`attend`] judge a request; [`start`], [`renew`], [`finish`] and [`abandon`] are the
//! owner's; [`commit_local`] combines them if the effect is in the same transaction as its record; [`lapse`] handles a
//! dead owner's record, [`redate`] corrects dates in the future, and [`reconcile`], [`postpone`], [`plan_probe`],
//! [`resolve`] and [`release`] resolve it; [`expire`] and [`purge`] end it, and [`extend`] keeps a tombstone longer;
//! [`erase`] removes its content; [`route`] finds a command during a rotation of the hashing secret.

mod command;
mod dates;
mod erase;
mod judge;
mod local;
mod owner;
mod retention;
mod rotation;
mod rules;
mod verdict;

pub use command::Command;
pub use dates::{expires_at, gone_at, is_dated_ahead, is_lease_dead, repeat_within, written_ahead_by};
pub use erase::{Erasure, erase, may_erase};
pub use judge::{Begin, Decision, NewAttempt, Reply, attend, decide, may_repeat, to_be_asked_from};
pub use local::{LocalEnding, commit_local, local_write_result};
pub use owner::{
    WriteResult, abandon, applied_claim, contradicts, finish, held_for, is_held, lease_left, may_send,
    outlived, overtaken, renew, start, was_applied, write_result,
};
pub use retention::{Due, due, expire, extend, is_expired, is_gone, purge};
pub use rotation::{Route, Stage, route};
pub use rules::Rule;
pub use verdict::{
    LAPSED, Verdict, denial_refused_until, expect_fence, lapse, may_release, may_resolve, plan_probe,
    postpone, reconcile, reconcile_after, redate, release, resolve,
};

use crate::history;
use crate::record::{Entry, Record, State, StateName, Token};
use crate::time::{Now, Time};
use std::fmt;
use std::time::Duration;

/// When a transition happens, by whom and why: its entry in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// The moment, by the store's clock, and what may be concluded from it.
    pub now: Now,
    /// The worker, sweeper, reconciler or operator.
    pub who: &'a str,
    /// The reason, in a few words; may be empty.
    pub why: &'a str,
}

impl<'a> Stamp<'a> {
    /// A stamp for an action of `who` at `now`.
    pub fn new(now: impl Into<Now>, who: &'a str, why: &'a str) -> Self {
        Self { now: now.into(), who, why }
    }
}

/// What a store found under a command id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// Nothing.
    Nothing,
    /// A record.
    Record(&'a Record),
    /// The marker of a command that is stored under the next secret's ID.
    Moved,
    /// An unreadable entry: damaged, sealed with a missing key, or written by a newer node. Answered as unknown in
    /// every class, and never overwritten.
    Unreadable,
}

impl<'a> From<Option<&'a Entry>> for Found<'a> {
    fn from(entry: Option<&'a Entry>) -> Self {
        match entry {
            None => Self::Nothing,
            Some(Entry::Record(record)) => Self::Record(record),
            Some(Entry::Moved) => Self::Moved,
        }
    }
}

/// What the store must still contain for a write to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a condition has no effect until a store checks it"]
pub enum Expect {
    /// No entry.
    Absent,
    /// The record that the write was computed from.
    Unchanged(Unchanged),
}

/// A record of exactly this version, token and state. None of them is enough alone: after a failover that lost
/// writes, a version occurs again on another timeline; one owner's token is on many versions; and a verdict keeps the
/// token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a condition has no effect until a store checks it"]
pub struct Unchanged {
    /// The version that the write was computed from.
    pub version: u64,
    /// The token that the write was computed from.
    pub token: Token,
    /// The state that the write was computed from.
    pub state: StateName,
}

impl Unchanged {
    /// The condition that `record` is unchanged.
    pub fn of(record: &Record) -> Self {
        Self { version: record.version, token: record.token, state: record.state_name() }
    }

    /// Whether a store found that record.
    #[must_use]
    pub fn met_by(&self, found: Found<'_>) -> bool {
        matches!(found, Found::Record(record) if *self == Self::of(record))
    }
}

impl Expect {
    /// The condition that `record` is unchanged.
    pub fn unchanged(record: &Record) -> Self {
        Self::Unchanged(Unchanged::of(record))
    }

    /// Whether the condition holds for what a store found.
    #[must_use]
    pub fn met_by(&self, found: Found<'_>) -> bool {
        match self {
            Self::Absent => matches!(found, Found::Nothing),
            Self::Unchanged(unchanged) => unchanged.met_by(found),
        }
    }
}

/// A compare-and-swap for a store to apply: write `next` if `expect` still holds, otherwise nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "a transition changes nothing before a store has applied its write"]
pub struct Write {
    /// What the store must still contain.
    pub expect: Expect,
    /// What it contains afterwards.
    pub next: Record,
}

/// Why a transition is refused. The record is unchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The record now belongs to another attempt.
    Superseded,
    /// The attempt was not started, so it has no effect to report.
    NotStarted,
    /// The record is in a state that this transition does not start from.
    WrongState,
    /// The record was claimed under another class than `local` and keeps it: its effect is not in the same
    /// transaction.
    NotLocal,
    /// The outcome is final, or the attempt has already ended.
    Settled,
    /// The owner's lease is still valid. Unless renewed, it expires at this moment.
    LeaseAlive(Time),
    /// A silent owner may still act: until this moment, absence proves nothing.
    QuietUntil(Time),
    /// An earlier attempt may have taken effect.
    InDoubt,
    /// The record must be kept until this moment.
    NotBefore(Time),
    /// The clock is not trusted enough for this. Its dates and judgements could be wrong by any amount.
    ClockNotTrusted,
    /// The transition would break a rule that holds for every write. This is a bug in Semel; raise an alarm.
    Inconsistent(Rule),
}

impl Refusal {
    /// When to try again, if the passage of time alone can change the answer.
    pub fn retry_at(&self) -> Option<Time> {
        match self {
            Self::LeaseAlive(dead_from) => Some(*dead_from),
            // Strictly later than that moment.
            Self::QuietUntil(quiet_until) => Some(*quiet_until + Duration::from_millis(1)),
            Self::NotBefore(time) => Some(*time),
            Self::Superseded
            | Self::NotStarted
            | Self::WrongState
            | Self::NotLocal
            | Self::Settled
            | Self::InDoubt
            | Self::ClockNotTrusted
            | Self::Inconsistent(_) => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superseded => f.write_str("the record now belongs to another attempt"),
            Self::NotStarted => f.write_str("the attempt was not started, so it has no outcome"),
            Self::WrongState => f.write_str("the record's state does not allow this"),
            Self::NotLocal => f.write_str("the record was claimed under another class than `local`"),
            Self::Settled => f.write_str("the record is settled already"),
            Self::LeaseAlive(_) => f.write_str("the owner's lease is still alive"),
            Self::QuietUntil(_) => {
                f.write_str("the owner may still act; absence proves nothing before the quiet period is over")
            }
            Self::InDoubt => f.write_str("an earlier attempt may have taken effect"),
            Self::NotBefore(_) => f.write_str("the record's time is not over yet"),
            Self::ClockNotTrusted => {
                f.write_str("the clock is not trusted enough for this; nothing was changed")
            }
            Self::Inconsistent(rule) => {
                write!(
                    f,
                    "bug in Semel, please report it: the change breaks the rule that {rule}; nothing was written"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// The record after a write: the next version, with the new state and, if the change matters to people, a history
/// entry.
fn written(record: &Record, state: State, stamp: Stamp<'_>) -> Record {
    let mut next = record.clone();
    next.version += 1;
    next.created_at = dates::first_date(record, stamp.now);
    next.updated_at = stamp.now.at;
    next.set_state_with_labels(state);
    remember(&mut next, stamp);
    next
}

fn remember(record: &mut Record, stamp: Stamp<'_>) {
    let entry = history_entry(record, stamp);
    record.history.push(entry, record.policy.history_entries_max);
}

/// The history entry for a record's new state.
fn history_entry(record: &Record, stamp: Stamp<'_>) -> history::Entry {
    history::Entry {
        attempt: record.attempt,
        to: record.state_name(),
        at: stamp.now.at,
        who: stamp.who.into(),
        why: stamp.why.into(),
    }
}

#[cfg(test)]
mod tests;
