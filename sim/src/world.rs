//! One state of the modelled world: the store, the workers, the provider, and the data of an all-knowing observer.

use semel_core::machine::{Found, Write};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Record, Token};
use semel_core::time::Trust;
use std::sync::Arc;

/// The entry under one command ID.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Empty,
    Record(Arc<Record>),
    Moved,
    /// A record that is unreadable for now.
    Unreadable(Arc<Record>),
}

impl Cell {
    pub(crate) fn found(&self) -> Found<'_> {
        match self {
            Self::Empty => Found::Nothing,
            Self::Record(record) => Found::Record(record),
            Self::Moved => Found::Moved,
            Self::Unreadable(_) => Found::Unreadable,
        }
    }

    pub(crate) fn record(&self) -> Option<&Arc<Record>> {
        match self {
            Self::Record(record) => Some(record),
            _ => None,
        }
    }
}

/// A write in flight to the store.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A compare-and-swap.
    Swap(Arc<Write>),
    /// The marker of a command that moves to the next secret's id.
    Marker,
    /// A marker under the old id and a compare-and-swap under the new one, in one transaction.
    Move(Arc<Write>),
    /// A removal of exactly this record.
    Remove(Arc<Record>),
}

impl Message {
    /// The compare-and-swap in it.
    pub(crate) fn write(&self) -> Option<&Arc<Write>> {
        match self {
            Self::Swap(write) | Self::Move(write) => Some(write),
            Self::Marker | Self::Remove(_) => None,
        }
    }
}

/// The purpose of a worker's write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Claim,
    PlantMarker,
    MarkUnknown,
    Start,
    Finish,
}

/// The result of an attempt, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The provider's answer: an effect, named by the token of the attempt that caused it.
    Done(u8),
    /// The provider declined permanently.
    Declined,
    /// The provider reports that nothing took effect, or nothing was sent.
    NotApplied,
    /// There was no answer, or an unclear one.
    NoAnswer,
    /// The provider reports that its own first attempt is still running.
    StillRunning,
}

#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Idle,
    /// A write is in flight and waits for its acknowledgement.
    Writing(Purpose, Message),
    /// There was no acknowledgement: read again.
    Unsure(Purpose, Message),
    /// The attempt is ours, and nothing has been sent.
    Owning(Arc<Record>),
    /// The effect was sent.
    Waiting(Arc<Record>),
    /// There is an answer.
    Holding(Arc<Record>),
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) phase: Phase,
    /// How many attempts it has started.
    pub(crate) begun: u8,
    /// The attempt's token.
    pub(crate) token: Token,
    /// The payload of the current request.
    pub(crate) payload: u8,
    /// Under which id the command was claimed.
    pub(crate) cell: usize,
    /// The current answer.
    pub(crate) held: Held,
    /// Whether it claims under the new secret already.
    pub(crate) moving: bool,
    /// When it dated the write in flight, and its last stored one, by the true time. Kept only if the clock may be
    /// wrong.
    pub(crate) dating_at: u16,
    pub(crate) dated_at: u16,
}

/// An effect in flight to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) token: u8,
    pub(crate) fence: u16,
    pub(crate) sent_at: u16,
    pub(crate) period: u8,
    /// The ID under which its command was claimed: the operation ID is derived from it.
    pub(crate) cell: usize,
}

/// An effect that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) token: u8,
    pub(crate) at: u16,
    pub(crate) fence: u16,
    pub(crate) period: u8,
    pub(crate) cell: usize,
}

/// A computed write of the sweeper or reconciler that is not stored yet.
#[derive(Clone, Debug)]
pub(crate) struct Chore {
    pub(crate) cell: usize,
    pub(crate) message: Message,
}

/// A reconciler's probe whose answer is in flight.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) cell: usize,
    pub(crate) record: Arc<Record>,
    /// By the clock that was read, without the offset of all clocks.
    pub(crate) asked_at: u16,
    /// The effect that the provider found, if any.
    pub(crate) found: Option<u8>,
}

/// What is left of each kind of fault and action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    pub(crate) write_faults: u8,
    pub(crate) answer_faults: u8,
    pub(crate) renewals: u8,
    pub(crate) damages: u8,
    pub(crate) failovers: u8,
    pub(crate) operator_acts: u8,
    pub(crate) erasures: u8,
    pub(crate) set_backs: u8,
    pub(crate) replacements: u8,
    pub(crate) wrong_starts: u8,
}

/// Facts that no part of the model knows; the invariants are checked against them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer {
    /// Which retention period this is.
    pub(crate) period: u8,
    /// When the outcome of this period became final.
    pub(crate) settled_at: Option<u16>,
    /// What a client was answered, and until when it holds: an effect's token, or `None` for a failure.
    pub(crate) acknowledged: Option<(Option<u8>, u16)>,
    /// The payload that the key was bound to first.
    pub(crate) bound: Option<u8>,
    /// When final outcomes were really dated, if the clock may be wrong: the attempt, the clock's time, the true time.
    pub(crate) dated: Vec<(u8, u16, u16)>,
    /// Claims that were applied, and in which period.
    pub(crate) periods: Vec<(u8, u8)>,
    /// Something went wrong that may end in UNKNOWN.
    pub(crate) fault: bool,
    /// An operator released the payload.
    pub(crate) released: bool,
    /// An operator erased something of this period.
    pub(crate) erased: bool,
    /// The attempt of a local command whose client was answered that it was rolled back, although it may still commit.
    pub(crate) told_rolled_back: Option<u8>,
}

/// The clock of all nodes, and what they conclude from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Clock {
    /// What it shows when the true time is zero.
    pub(crate) offset: u16,
    /// The same before it went wrong at a start.
    pub(crate) offset_before: u16,
    pub(crate) trust: Trust,
    pub(crate) steady_since: Option<u16>,
    pub(crate) replaced_at: Option<u16>,
    pub(crate) replaced_up_to: Option<u16>,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    /// The true time.
    pub(crate) now: u16,
    pub(crate) clock: Clock,
    pub(crate) cells: [Cell; 2],
    pub(crate) backup: Option<[Cell; 2]>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) flights: Vec<Flight>,
    /// Writes whose sender gave up and that may still arrive.
    pub(crate) limbo: Vec<(usize, Message)>,
    pub(crate) effects: Vec<Effect>,
    /// The provider is working on this one.
    pub(crate) busy: Option<Flight>,
    /// When the provider declined the operation; it remembers this like an effect.
    pub(crate) declined_at: Option<u16>,
    /// The provider refuses the operation permanently.
    pub(crate) refused: bool,
    pub(crate) chore: Option<Chore>,
    pub(crate) question: Option<Question>,
    pub(crate) old_secret_dropped: bool,
    /// The clock has jumped: nothing new starts, running work ends.
    pub(crate) ended: bool,
    pub(crate) budget: Budget,
    pub(crate) observer: Observer,
}

/// The effect of an outcome; `None` for a failure.
pub(crate) fn effect_of(outcome: &Outcome) -> Option<u8> {
    match &outcome.body {
        Body::Kept(bytes) => bytes.first().copied(),
        Body::NotRetained | Body::Sealed(_) => None,
    }
}

/// The model's tokens are small numbers.
pub(crate) fn small(token: Token) -> u8 {
    u8::try_from(token.bits()).unwrap_or(u8::MAX)
}

impl World {
    /// What the clock shows.
    pub(crate) fn shown(&self) -> u16 {
        self.now + self.clock.offset
    }

    /// The retention period that an attempt belongs to.
    pub(crate) fn period_of(&self, token: Token) -> u8 {
        let token = small(token);
        let known = self.observer.periods.iter().rev().find(|(known, _)| *known == token);
        known.map_or(self.observer.period, |(_, period)| *period)
    }
}

impl Observer {
    /// The true time of an outcome that the clock dated `shown`.
    pub(crate) fn dated_at(&self, token: Token, shown: u16) -> u16 {
        let token = small(token);
        let known = self.dated.iter().find(|(dated, clock, _)| (*dated, *clock) == (token, shown));
        known.map_or(shown, |(_, _, at)| *at)
    }
}
