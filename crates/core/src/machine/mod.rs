//! The state machine: every way a record may change, each a pure function from record to record.
//!
//! What lives here: the meaning of Semel. A store swaps records, a transport speaks a protocol, an engine runs
//! work; what any of it *means* is decided in these files and nowhere else.
//! What must never: I/O, a clock, randomness. The moment and the token are arguments, so that a model checker
//! can walk through every order of events with this very code.
//!
//! The states and the ways between them are pictured at the [crate's front page](crate#the-states).
//!
//! Three principles hold everywhere:
//!
//! 1. A write names the version, the token and the state of the record that it was computed from ([`Expect`]); the
//!    store applies it only where all three still stand. A stale worker therefore changes nothing.
//! 2. A final outcome changes only by the end of its retention, or by an operator who erases its response.
//! 3. What cannot be proven is `UNKNOWN`; only an outcome, a verdict, or (where the effect's own system
//!    deduplicates) another attempt leads out of it.
//!
//! What can be seen of them in an old record and its successor is checked on the way out of every transition: [`Rule`].
//!
//! The files: [`decide`] and [`attend`] judge a request; [`start`], [`renew`], [`finish`] and [`abandon`] are
//! the owner's; [`commit_local`] is all of them at once, where the effect is in the same transaction as its record; [`lapse`] marks what a dead owner left behind, [`redate`] brings back what a wrong clock dated
//! ahead, and [`reconcile`], [`postpone`], [`resolve`] and [`release`] settle it; [`expire`] and [`purge`] end it; [`erase`] removes what it says; [`route`] leads through a change of the hashing secret.

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
pub use judge::{Begin, Decision, Reply, Ticket, attend, decide, may_repeat, to_be_asked_from};
pub use local::{LocalEnding, commit_local};
pub use owner::{
    abandon, claim_landed, contradicts, finish, held_for, is_held, landed, lease_left, may_send, outlived,
    overtaken, renew, start,
};
pub use retention::{Due, due, expire, is_expired, is_gone, purge};
pub use rotation::{Route, Stage, route};
pub use rules::Rule;
pub use verdict::{
    Verdict, denial_refused_until, lapse, may_release, may_resolve, postpone, reconcile, reconcile_after,
    redate, release, resolve,
};

use crate::history;
use crate::record::{Entry, Record, State, StateName, Token};
use crate::time::{Now, Time};
use std::fmt;
use std::time::Duration;

/// When a transition happens, by whom and why: what history remembers of it.
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
    /// A stamp for what `who` does at `now`.
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
    /// The marker of a command that lives under the next secret's id.
    Moved,
    /// Something that cannot be read: damaged, sealed with a missing key, or written by a newer node. It is
    /// answered as unknown in every class, and never written over.
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

/// What must still stand in the store for a write to be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a condition holds back nothing before it reaches a store"]
pub enum Expect {
    /// Nothing at all.
    Absent,
    /// The record that the write was computed from.
    Unchanged(Unchanged),
}

/// A record of exactly this version, this token and this state. None of them is enough alone: after a lossy fail-over a version
/// comes again on another timeline, one owner's token stands on many versions, and a verdict keeps the token, so that both
/// can come again with another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a condition holds back nothing before it reaches a store"]
pub struct Unchanged {
    /// The version that the write was computed from.
    pub version: u64,
    /// The token that the write was computed from.
    pub token: Token,
    /// The state that the write was computed from.
    pub state: StateName,
}

impl Unchanged {
    /// That `record` is still as it was read.
    pub fn of(record: &Record) -> Self {
        Self { version: record.version, token: record.token, state: record.state_name() }
    }

    /// Whether what a store found is that record.
    #[must_use]
    pub fn met_by(&self, found: Found<'_>) -> bool {
        matches!(found, Found::Record(record) if *self == Self::of(record))
    }
}

impl Expect {
    /// That `record` is still as it was read.
    pub fn unchanged(record: &Record) -> Self {
        Self::Unchanged(Unchanged::of(record))
    }

    /// Whether what a store found is what was expected.
    #[must_use]
    pub fn met_by(&self, found: Found<'_>) -> bool {
        match self {
            Self::Absent => matches!(found, Found::Nothing),
            Self::Unchanged(unchanged) => unchanged.met_by(found),
        }
    }
}

/// A compare-and-swap for a store to apply: `next` where `expect` still holds, nothing otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[must_use = "a transition changes nothing before a store has applied its write"]
pub struct Write {
    /// What must still stand there.
    pub expect: Expect,
    /// What shall stand there afterwards.
    pub next: Record,
}

/// Why a transition is not to be had. The record is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The record belongs to another attempt by now.
    Superseded,
    /// The attempt has not been started, so that it can have had no effect to report.
    NotStarted,
    /// The record is in a state that this transition does not start from.
    WrongState,
    /// The record was claimed under another class than `local`, and keeps it: its effect is in no transaction with it.
    NotLocal,
    /// The outcome is final, or the attempt was ended before.
    Settled,
    /// The owner's lease is still alive. Unless it is renewed, it is dead from this moment on.
    LeaseAlive(Time),
    /// An owner that went silent may still act: absence proves nothing before this moment.
    QuietUntil(Time),
    /// An earlier attempt may have taken effect.
    InDoubt,
    /// The record's time is not over before this moment.
    NotBefore(Time),
    /// The clock is not trusted, or not yet trusted enough for this. What would be dated or judged by it could be
    /// wrong by any amount.
    ClockNotTrusted,
    /// The transition would break a rule that every write keeps. This is a bug in Semel, worth an alarm.
    Inconsistent(Rule),
}

impl Refusal {
    /// From when on the same may be tried again, where time alone can change the answer.
    pub fn retry_at(&self) -> Option<Time> {
        match self {
            Self::LeaseAlive(dead_from) => Some(*dead_from),
            // It has to be later than that.
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
            Self::Superseded => f.write_str("the record belongs to another attempt by now"),
            Self::NotStarted => f.write_str("the attempt was never started, so it has no outcome"),
            Self::WrongState => f.write_str("the record's state does not allow this"),
            Self::NotLocal => f.write_str("the record was claimed under another class than `local`"),
            Self::Settled => f.write_str("the record is settled already"),
            Self::LeaseAlive(_) => f.write_str("the owner's lease is still alive"),
            Self::QuietUntil(time) => {
                write!(f, "the owner may still act; absence proves nothing before {time:?}")
            }
            Self::InDoubt => f.write_str("an earlier attempt may have taken effect"),
            Self::NotBefore(time) => write!(f, "the record must be kept until {time:?}"),
            Self::ClockNotTrusted => {
                f.write_str("the clock is not trusted enough for this; nothing was changed")
            }
            Self::Inconsistent(rule) => {
                write!(
                    f,
                    "the change breaks the rule that {rule}; nothing was written; report this as a bug in Semel"
                )
            }
        }
    }
}

impl std::error::Error for Refusal {}

/// The record after a write: one version on, with the new state and, where something happened that a person
/// would want to know of, an entry in its history.
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

/// What history remembers of a record that has just got its state.
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
