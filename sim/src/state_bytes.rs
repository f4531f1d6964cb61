//! Encodes a state of the world as bytes, which identify it.

use crate::model::selection_number;
use crate::world::{
    Budget, Cell, Clock, Flight, Held, Message, Observer, Phase, Worker, World, effect_of, small,
};
use semel_core::machine::{Expect, Unchanged};
use semel_core::record::{Doubt, Proof, Record, State};
use semel_core::time::Time;

/// Writes states as bytes that are equal exactly when the states are.
pub(crate) struct StateBytes(pub(crate) Vec<u8>);

impl StateBytes {
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
        self.byte(u8::from(record.earlier_doubt()) | selection_number(&record.policy().selection) << 1);
        self.byte(record.fingerprint().as_bytes()[0]);
        self.byte(record.state_name().number());
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
                self.maybe(next_probe_at.map(Time::as_millis));
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
            Message::Swap(write) | Message::Move(write) => {
                self.byte(if matches!(message, Message::Move(_)) { 3 } else { 1 });
                match write.expect {
                    Expect::Absent => self.byte(0),
                    Expect::Unchanged(Unchanged { version, token, state }) => {
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
        self.number(u64::from(worker.dating_at));
        self.number(u64::from(worker.dated_at));
        // An idle worker's data of its last request has no meaning any more.
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

    fn clock(&mut self, clock: Clock) {
        let Clock { offset, offset_before, trust, steady_since, replaced_at, replaced_up_to } = clock;
        self.number(u64::from(offset));
        self.number(u64::from(offset_before));
        self.byte(trust as u8);
        self.maybe(steady_since.map(u64::from));
        self.maybe(replaced_at.map(u64::from));
        self.maybe(replaced_up_to.map(u64::from));
    }

    /// The whole world.
    pub(crate) fn world(&mut self, world: &World) {
        self.number(u64::from(world.now));
        self.byte(
            u8::from(world.refused)
                | u8::from(world.old_secret_dropped) << 1
                | u8::from(world.ended) << 2
                | u8::from(world.observer.fault) << 3
                | u8::from(world.observer.released) << 4
                | u8::from(world.observer.erased) << 5,
        );
        let Budget {
            crashes,
            write_faults,
            answer_faults,
            renewals,
            damages,
            failovers,
            operator_acts,
            erasures,
            set_backs,
            replacements,
            wrong_starts,
        } = world.budget;
        self.0.extend([
            crashes,
            write_faults,
            answer_faults,
            renewals,
            damages,
            failovers,
            operator_acts,
            erasures,
            set_backs,
            replacements,
            wrong_starts,
        ]);
        self.clock(world.clock);
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
        self.maybe(observer.told_rolled_back.map(u64::from));
        self.number(observer.dated.len() as u64);
        for (token, clock, at) in &observer.dated {
            self.byte(*token);
            self.number(u64::from(*clock));
            self.number(u64::from(*at));
        }
        self.number(observer.periods.len() as u64);
        for (token, period) in &observer.periods {
            self.byte(*token);
            self.byte(*period);
        }
    }
}
