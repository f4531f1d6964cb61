//! What must hold in every state.

use crate::bug::Bug;
use crate::config::Config;
use crate::model::{Content, Model, stamp, time};
use crate::world::{Cell, World, effect_of};
use semel_core::machine::{self, Begin, Decision, Found, NewAttempt, Reply};
use semel_core::policy::Class;
use semel_core::record::{Record, State, Token};
use std::fmt;

/// An invariant, named by its breach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Class `external`: at most one effect for a key.
    SecondEffect,
    /// Class `local`: exactly one effect for a committed transaction.
    NotExactlyOnce,
    /// Class `downstream`: at most one effect at a provider that deduplicates.
    SecondEffectDownstream,
    /// An acknowledged outcome is never lost nor changed.
    AcknowledgedOutcomeLost,
    /// Terminal is final until expiry.
    FinalOutcomeChanged,
    /// A stale attempt changes nothing.
    StaleAttemptActed,
    /// A stored outcome is true: a success has an effect, a failure has none.
    OutcomeUntrue,
    /// Another payload is only answered with mismatch or expired while the first one's record exists.
    OtherPayloadAnswered,
    /// A live owner's finish over its own UNKNOWN ends terminal.
    OwnerShutOut,
    /// Every UNKNOWN is caused by a fault.
    UnknownWithoutFault,
    /// A request is answered by its record, and runs if nothing prevents it.
    WronglyAnswered,
    /// An unreadable record is left alone.
    UnreadableTouched,
    /// Nobody sends the effect of an attempt that others have taken over.
    SentAfterGivenUp,
    /// A transition that the record's state forbids is refused.
    ForbiddenMoveAccepted,
    /// Class `local`: a transaction that was reported as rolled back does not commit.
    RolledBackCommitted,
    /// Some step always leads to a settled state.
    Wedged,
}

impl Violation {
    /// The promise that was broken.
    pub fn promise(self) -> &'static str {
        match self {
            Self::SecondEffect => "at most one effect per key and retention period (external)",
            Self::NotExactlyOnce => "exactly one effect per committed transaction (local)",
            Self::SecondEffectDownstream => "at most one effect at a provider that deduplicates (downstream)",
            Self::AcknowledgedOutcomeLost => "an acknowledged outcome is never lost nor changed",
            Self::FinalOutcomeChanged => "a terminal record is final until it expires",
            Self::StaleAttemptActed => "a stale attempt changes nothing",
            Self::OutcomeUntrue => "a stored outcome is true",
            Self::OtherPayloadAnswered => "another payload is only answered with mismatch or expired",
            Self::OwnerShutOut => "a live owner's finish over its own UNKNOWN ends terminal",
            Self::UnknownWithoutFault => "every UNKNOWN is caused by a fault",
            Self::WronglyAnswered => "a request is answered by its record, and runs if nothing prevents it",
            Self::UnreadableTouched => "an unreadable record is left alone",
            Self::SentAfterGivenUp => "no effect is sent for an attempt that others have taken over",
            Self::ForbiddenMoveAccepted => "a transition that the record's state forbids is refused",
            Self::RolledBackCommitted => "what was reported as rolled back does not commit (local)",
            Self::Wedged => "no key is stuck: some step always leads to a settled state",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.promise())
    }
}

/// Whether every promise holds that is visible in one state.
pub(crate) fn promises_hold(world: &World, model: &Model<'_>) -> Result<(), Violation> {
    check(world, model.config)?;
    other_payload_is_refused(world, model)?;
    request_succeeds(world, model)
}

/// Checks everything that is visible in one state.
fn check(world: &World, config: &Config) -> Result<(), Violation> {
    if config.promises_only_fencing() {
        return Ok(());
    }
    effects_happen_once(world, config)?;
    acknowledged_outcome_is_stored(world, config)?;
    for (cell, record) in
        world.cells.iter().enumerate().filter_map(|(index, cell)| Some((index, cell.record()?)))
    {
        outcome_is_true(cell, record, world)?;
        if matches!(record.state(), State::Unknown { .. }) && !world.observer.fault {
            return Err(Violation::UnknownWithoutFault);
        }
    }
    Ok(())
}

fn effects_happen_once(world: &World, config: &Config) -> Result<(), Violation> {
    let violation = match config.class {
        Class::External => Violation::SecondEffect,
        Class::Downstream => Violation::SecondEffectDownstream,
        Class::Local => Violation::NotExactlyOnce,
    };
    let together = |period: u8| world.effects.iter().filter(|effect| effect.period == period).count();
    let total = world.effects.len();
    let most = (0..=world.observer.period).map(together).max().unwrap_or(0);
    let counted = if config.assume.once_is_per_retention { most } else { total };
    if counted > 1 { Err(violation) } else { Ok(()) }
}

fn acknowledged_outcome_is_stored(world: &World, config: &Config) -> Result<(), Violation> {
    let Some((effect, until)) = world.observer.acknowledged else { return Ok(()) };
    // Until the first clock judges it expired.
    if world.now + config.skew >= until || !config.assume.clock_is_not_set_back {
        return Ok(());
    }
    let is_stored = world.cells.iter().any(|cell| match cell {
        // It becomes readable again with its key.
        Cell::Unreadable(_) => true,
        Cell::Record(record) => match record.state() {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => {
                world.observer.erased || effect_of(outcome) == effect
            }
            State::Expired { .. } => world.observer.erased,
            _ => false,
        },
        Cell::Empty | Cell::Moved => false,
    });
    if is_stored { Ok(()) } else { Err(Violation::AcknowledgedOutcomeLost) }
}

fn outcome_is_true(cell: usize, record: &Record, world: &World) -> Result<(), Violation> {
    let period = world.period_of(record.token());
    let happened = world.effects.iter().any(|effect| effect.period == period && effect.cell == cell);
    let is_true = match record.state() {
        State::Succeeded { outcome, .. } => match effect_of(outcome) {
            // Of any period: a deduplicating provider may still remember the one before.
            Some(token) => world.effects.iter().any(|effect| effect.token == token),
            None => happened || world.observer.erased && !world.effects.is_empty(),
        },
        State::FailedReplayable { .. } | State::FailedNotReplayable { .. } => !happened,
        _ => true,
    };
    if is_true { Ok(()) } else { Err(Violation::OutcomeUntrue) }
}

/// Another payload under the same key is only ever refused while a record of the first binds the key.
fn other_payload_is_refused(world: &World, model: &Model<'_>) -> Result<(), Violation> {
    let Some(bound) = world.observer.bound else { return Ok(()) };
    if model.config.payloads < 2 || world.observer.released {
        return Ok(());
    }
    let other = Content(1 - bound);
    let new_attempt = NewAttempt { token: Token::from_random(0), begin: Begin::Processing };
    for record in world.cells.iter().filter_map(Cell::record) {
        for now in world.now..=world.now + model.config.skew {
            if record.gone_at().is_some_and(|gone_at| time(now) >= gone_at) {
                continue;
            }
            let found = Found::Record(record);
            match model.protocol.decide(found, &model.command(&other), new_attempt, stamp(now)) {
                Decision::Answer(Reply::Mismatch | Reply::Expired) => {}
                _ => return Err(Violation::OtherPayloadAnswered),
            }
        }
    }
    Ok(())
}

/// The same payload again: its answer follows from the visible record.
fn request_succeeds(world: &World, model: &Model<'_>) -> Result<(), Violation> {
    // These bugs answer wrongly at once; their traces should continue to the consequence.
    let wrong = [Bug::TakeOverOfExternalProcessing, Bug::LeaseDeadWithoutSkew];
    // A record dated by a wrong clock cannot be judged by its dates alone.
    if model.config.dates_may_be_wrong() || wrong.into_iter().any(|bug| model.protocol.has(bug)) {
        return Ok(());
    }
    for record in world.cells.iter().filter_map(Cell::record) {
        for now in world.now..=world.now + model.config.skew {
            if !is_rightly_answered(record, now, model) {
                return Err(Violation::WronglyAnswered);
            }
        }
    }
    Ok(())
}

fn is_rightly_answered(record: &Record, clock: u16, model: &Model<'_>) -> bool {
    let (now, skew) = (time(clock), record.policy().skew);
    let new_attempt = NewAttempt { token: Token::from_random(0), begin: Begin::Processing };
    let payload = Content::of(record);
    let found = Found::Record(record);
    let decision = model.protocol.decide(found, &model.command(&payload), new_attempt, stamp(clock));
    let waiter = machine::attend(found, &model.command(&payload), now);
    let local = model.config.class == Class::Local;
    let external = model.config.class == Class::External;
    match (record.state(), &decision) {
        (
            State::Succeeded { expires_at, outcome } | State::FailedReplayable { expires_at, outcome },
            decision,
        ) if now < *expires_at => {
            *decision == Decision::Answer(Reply::Replay(outcome)) && waiter == Reply::Replay(outcome)
        }
        (State::Succeeded { .. } | State::FailedReplayable { .. } | State::Expired { .. }, decision) => {
            let gone = record.gone_at().is_some_and(|gone_at| now >= gone_at);
            if gone { runs(decision) } else { *decision == Decision::Answer(Reply::Expired) }
        }
        (State::FailedNotReplayable { .. }, decision) => runs(decision),
        (State::Claimed { lease_until } | State::Processing { lease_until }, decision)
            if now < *lease_until + skew =>
        {
            *decision == Decision::Answer(Reply::InProgress) && waiter == Reply::InProgress
        }
        (State::Claimed { .. }, decision) if !record.earlier_doubt() => runs(decision),
        (State::Processing { .. }, decision) if local => runs(decision),
        (State::Processing { .. }, decision) if external => matches!(decision, Decision::MarkUnknown(_)),
        (State::Unknown { .. }, decision) if external => *decision == Decision::Answer(Reply::Unknown),
        // Downstream, in doubt: another attempt, or unknown after the provider may have forgotten.
        (_, decision) => {
            let unknown = matches!(decision, Decision::MarkUnknown(_) | Decision::Answer(Reply::Unknown));
            runs(decision) || unknown
        }
    }
}

fn runs(decision: &Decision<'_>) -> bool {
    matches!(decision, Decision::Run(_))
}

/// A worker that may send still owns the attempt: nobody takes over a live lease, whatever their clock shows.
pub(crate) fn attempt_is_owned(world: &World, worker: usize, model: &Model<'_>) -> Result<(), Violation> {
    // With these bugs a worker sends without owning the attempt; their traces should continue to the consequence.
    let unowned = [
        Bug::FailOpenOnLostClaim,
        Bug::LeaseNotCheckedBeforeSending,
        Bug::EffectBeforeStart,
        Bug::TokenIsTheWorker,
    ];
    let is_expected = unowned.into_iter().any(|bug| model.protocol.has(bug));
    let config = model.config;
    if is_expected || config.failovers > 0 || !config.assume.clock_is_not_set_back {
        return Ok(());
    }
    let me = &world.workers[worker];
    let is_owned = match &world.cells[me.cell] {
        Cell::Record(record) | Cell::Unreadable(record) => {
            record.token() == me.token
                && matches!(record.state(), State::Claimed { .. } | State::Processing { .. })
        }
        Cell::Empty | Cell::Moved => false,
    };
    if is_owned { Ok(()) } else { Err(Violation::SentAfterGivenUp) }
}

/// Whether nothing is pending for the key: every path must be able to reach such a state. ([`request_succeeds`] checks
/// that a request then succeeds.)
pub(crate) fn is_settled(world: &World) -> bool {
    world.cells.iter().all(|cell| match cell {
        Cell::Empty | Cell::Moved | Cell::Unreadable(_) => true,
        Cell::Record(record) => {
            record.is_terminal() || matches!(record.state(), State::FailedNotReplayable { .. })
        }
    })
}
