//! One state of the modelled world: the store, the workers, the provider, and what an all-seeing observer knows.

use semel_core::machine::{Found, Write};
use semel_core::outcome::{Body, Outcome};
use semel_core::record::{Doubt, Proof, Record, State, Token};
use std::sync::Arc;

/// What stands under one command id.
#[derive(Clone, Debug)]
pub(crate) enum Cell {
    Empty,
    Record(Arc<Record>),
    Moved,
    /// A record that nobody can read for now.
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

/// A write on its way to the store.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// A compare-and-swap.
    Swap(Arc<Write>),
    /// The marker of a command that moves to the next secret's id.
    Marker,
    /// A removal of exactly this record.
    Remove(Arc<Record>),
}

/// What a worker wants with a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Claim,
    PlantMarker,
    MarkUnknown,
    Start,
    Finish,
}

/// How an attempt went, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// The provider's answer: an effect, named by the token of the attempt that caused it.
    Done(u8),
    /// The provider declined for good.
    Declined,
    /// The provider says that nothing took effect, or nothing was sent.
    NotApplied,
    /// No answer came, or one that says nothing.
    NoAnswer,
    /// The provider says that its own first attempt is still running.
    StillRunning,
}

#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Idle,
    /// A write is under way and its acknowledgement awaited.
    Writing(Purpose, Message),
    /// The acknowledgement never came: read again.
    Unsure(Purpose, Message),
    /// The attempt is ours, and nothing has been sent.
    Owning(Arc<Record>),
    /// The effect was sent.
    Waiting(Arc<Record>),
    /// An answer is in hand.
    Holding(Arc<Record>),
}

#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) phase: Phase,
    /// How many attempts it has begun.
    pub(crate) begun: u8,
    /// The attempt's token.
    pub(crate) token: Token,
    /// The payload of the request in hand.
    pub(crate) payload: u8,
    /// Under which id the command was claimed.
    pub(crate) cell: usize,
    /// The answer in hand.
    pub(crate) held: Held,
    /// Whether it claims under the new secret already.
    pub(crate) moving: bool,
}

/// An effect on its way to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Flight {
    pub(crate) token: u8,
    pub(crate) fence: u16,
    pub(crate) sent_at: u16,
    pub(crate) period: u8,
    /// Under which id its command was claimed: that is what its operation id comes from.
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

/// What the sweeper or reconciler has computed and not yet written.
#[derive(Clone, Debug)]
pub(crate) struct Chore {
    pub(crate) cell: usize,
    pub(crate) message: Message,
}

/// A reconciler's question whose answer is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) cell: usize,
    pub(crate) record: Arc<Record>,
    pub(crate) asked_at: u16,
    /// The effect that the provider found; `None`: it found nothing.
    pub(crate) found: Option<u8>,
}

/// What is left of each kind of fault and act.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) crashes: u8,
    pub(crate) write_faults: u8,
    pub(crate) answer_faults: u8,
    pub(crate) renewals: u8,
    pub(crate) damages: u8,
    pub(crate) failovers: u8,
    pub(crate) operator_acts: u8,
    pub(crate) set_backs: u8,
}

/// What nobody inside the model knows, and the invariants are checked against.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observer {
    /// Which retention period this is.
    pub(crate) period: u8,
    /// When the outcome of this period became final.
    pub(crate) settled_at: Option<u16>,
    /// What a client was told, and until when it holds: an effect's token, or `None` for a failure.
    pub(crate) acknowledged: Option<(Option<u8>, u16)>,
    /// The payload that the key was bound to first.
    pub(crate) bound: Option<u8>,
    /// Claims that landed, and in which period.
    pub(crate) periods: Vec<(u8, u8)>,
    /// Something went wrong that may end in UNKNOWN.
    pub(crate) fault: bool,
    /// An operator let go of the payload.
    pub(crate) released: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) now: u16,
    pub(crate) cells: [Cell; 2],
    pub(crate) backup: Option<[Cell; 2]>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) flights: Vec<Flight>,
    /// Writes whose sender gave up on them and that may still arrive.
    pub(crate) limbo: Vec<(usize, Message)>,
    pub(crate) effects: Vec<Effect>,
    /// The provider is at work on this one.
    pub(crate) busy: Option<Flight>,
    /// When the provider declined the operation, which it remembers like an effect.
    pub(crate) declined_at: Option<u16>,
    /// The provider refuses the operation for good.
    pub(crate) refused: bool,
    pub(crate) chore: Option<Chore>,
    pub(crate) question: Option<Question>,
    pub(crate) old_secret_dropped: bool,
    /// The clock has jumped: nothing new begins, what is under way ends.
    pub(crate) ended: bool,
    pub(crate) budget: Budget,
    pub(crate) observer: Observer,
}

/// The effect that an outcome tells of; `None` for a failure.
pub(crate) fn effect_of(outcome: &Outcome) -> Option<u8> {
    match &outcome.body {
        Body::Kept(bytes) => bytes.first().copied(),
        Body::NotRetained => None,
    }
}

/// Writes states as bytes that are equal exactly when the states are.
pub(crate) struct Ink(pub(crate) Vec<u8>);

impl Ink {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, number: u64) {
        assert!(number < 0xffff, "the model's numbers are small");
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        self.0.extend_from_slice(&(number as u16).to_le_bytes());
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number + 1));
    }

    fn record(&mut self, record: &Record) {
        self.number(record.version());
        self.byte(small(record.token()));
        self.byte(u8::try_from(record.attempt()).unwrap_or(u8::MAX));
        self.number(record.fence());
        self.number(record.created_at().as_millis());
        self.number(record.updated_at().as_millis());
        self.number(record.owner_wrote_at().as_millis());
        self.byte(u8::from(record.earlier_doubt()));
        self.byte(record.fingerprint().as_bytes()[0]);
        self.byte(record.state_name() as u8);
        match record.state() {
            State::Claimed { lease_until } | State::Processing { lease_until } => {
                self.number(lease_until.as_millis());
            }
            State::Succeeded { outcome, expires_at } | State::FailedReplayable { outcome, expires_at } => {
                self.maybe(effect_of(outcome).map(u64::from));
                self.number(expires_at.as_millis());
            }
            State::FailedNotReplayable { proof, bound, expires_at, .. } => {
                self.byte(match proof {
                    Proof::Owner => 0,
                    Proof::Verdict => 1,
                    Proof::NeverBegan => 2,
                });
                self.byte(u8::from(*bound));
                self.number(expires_at.as_millis());
            }
            State::Unknown { doubt, since, probes, next_probe_at } => {
                self.byte(u8::from(*doubt == Doubt::Owner));
                self.number(since.as_millis());
                self.number(u64::from(*probes));
                self.maybe(next_probe_at.map(semel_core::time::Time::as_millis));
            }
            State::Expired { until } => self.number(until.as_millis()),
        }
    }

    fn cell(&mut self, cell: &Cell) {
        match cell {
            Cell::Empty => self.byte(0),
            Cell::Moved => self.byte(1),
            Cell::Record(record) => {
                self.byte(2);
                self.record(record);
            }
            Cell::Unreadable(record) => {
                self.byte(3);
                self.record(record);
            }
        }
    }

    fn message(&mut self, message: &Message) {
        match message {
            Message::Marker => self.byte(0),
            Message::Swap(write) => {
                self.byte(1);
                match write.expect {
                    semel_core::machine::Expect::Absent => self.byte(0),
                    semel_core::machine::Expect::Unchanged { version, token, state } => {
                        self.byte(1);
                        self.number(version);
                        self.byte(small(token));
                        self.byte(state as u8);
                    }
                }
                self.record(&write.next);
            }
            Message::Remove(record) => {
                self.byte(2);
                self.record(record);
            }
        }
    }

    fn worker(&mut self, worker: &Worker) {
        self.byte(worker.begun | u8::from(worker.moving) << 7);
        match &worker.phase {
            Phase::Idle => return self.byte(0),
            Phase::Writing(purpose, message) => {
                self.byte(0x10 | *purpose as u8);
                self.message(message);
            }
            Phase::Unsure(purpose, message) => {
                self.byte(0x20 | *purpose as u8);
                self.message(message);
            }
            Phase::Owning(record) => {
                self.byte(1);
                self.record(record);
            }
            Phase::Waiting(record) => {
                self.byte(2);
                self.record(record);
            }
            Phase::Holding(record) => {
                self.byte(3);
                self.record(record);
            }
        }
        // What an idle worker remembers of its last request means nothing any more.
        self.byte(small(worker.token));
        self.byte(worker.payload << 4 | u8::try_from(worker.cell).unwrap_or(0));
        match worker.held {
            Held::Done(token) => {
                self.byte(0);
                self.byte(token);
            }
            Held::Declined => self.byte(1),
            Held::NotApplied => self.byte(2),
            Held::NoAnswer => self.byte(3),
            Held::StillRunning => self.byte(4),
        }
    }

    fn flight(&mut self, flight: &Flight) {
        self.byte(flight.token);
        self.byte(flight.period);
        self.number(flight.cell as u64);
        self.number(u64::from(flight.fence));
        self.number(u64::from(flight.sent_at));
    }

    /// The whole world.
    pub(crate) fn world(&mut self, world: &World) {
        self.number(u64::from(world.now));
        self.byte(
            u8::from(world.refused)
                | u8::from(world.old_secret_dropped) << 1
                | u8::from(world.ended) << 2
                | u8::from(world.observer.fault) << 3
                | u8::from(world.observer.released) << 4,
        );
        let Budget {
            crashes,
            write_faults,
            answer_faults,
            renewals,
            damages,
            failovers,
            operator_acts,
            set_backs,
        } = world.budget;
        self.0.extend([
            crashes,
            write_faults,
            answer_faults,
            renewals,
            damages,
            failovers,
            operator_acts,
            set_backs,
        ]);
        world.cells.iter().for_each(|cell| self.cell(cell));
        self.byte(u8::from(world.backup.is_some()));
        world.backup.iter().flatten().for_each(|cell| self.cell(cell));
        world.workers.iter().for_each(|worker| self.worker(worker));
        self.number(world.flights.len() as u64);
        world.flights.iter().for_each(|flight| self.flight(flight));
        self.number(world.limbo.len() as u64);
        for (cell, message) in &world.limbo {
            self.number(*cell as u64);
            self.message(message);
        }
        self.number(world.effects.len() as u64);
        for effect in &world.effects {
            self.byte(effect.token);
            self.byte(effect.period);
            self.number(effect.cell as u64);
            self.number(u64::from(effect.at));
            self.number(u64::from(effect.fence));
        }
        self.maybe(world.declined_at.map(u64::from));
        self.byte(u8::from(world.busy.is_some()));
        world.busy.iter().for_each(|flight| self.flight(flight));
        self.byte(u8::from(world.chore.is_some()));
        if let Some(chore) = &world.chore {
            self.number(chore.cell as u64);
            self.message(&chore.message);
        }
        self.byte(u8::from(world.question.is_some()));
        if let Some(question) = &world.question {
            self.number(question.cell as u64);
            self.record(&question.record);
            self.number(u64::from(question.asked_at));
            self.maybe(question.found.map(u64::from));
        }
        self.observer(&world.observer);
    }

    fn observer(&mut self, observer: &Observer) {
        self.byte(observer.period);
        self.maybe(observer.settled_at.map(u64::from));
        self.byte(u8::from(observer.acknowledged.is_some()));
        if let Some((effect, until)) = observer.acknowledged {
            self.maybe(effect.map(u64::from));
            self.number(u64::from(until));
        }
        self.maybe(observer.bound.map(u64::from));
        self.number(observer.periods.len() as u64);
        for (token, period) in &observer.periods {
            self.byte(*token);
            self.byte(*period);
        }
    }
}

/// The model's tokens are small numbers.
pub(crate) fn small(token: Token) -> u8 {
    u8::try_from(token.bits()).unwrap_or(u8::MAX)
}
