//! Everything that can happen next in a given state, each with the state it leads to.

mod background;
mod clock;
mod effect;
mod erase;
pub(crate) mod forbidden;
mod store;
mod worker;

use crate::bug::Bug;
use crate::config::Config;
use crate::invariant::Violation;
use crate::model::{Model, shown, time};
use crate::step::forbidden::Forbidden;
use crate::world::{Budget, Cell, Clock, Held, Observer, Phase, Worker, World, small};
use semel_core::machine::{Begin, Erasure, Stamp};
use semel_core::policy::Class;
use semel_core::record::{Record, Token};
use semel_core::time::{Now, Trust};
use std::time::Duration;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    ClockJumpsFarAhead,
    ClockIsSetBack,
    ClockIsReplaced { ahead: bool },
    NodesStartWithAnotherClock { ahead: bool },
    ClockComesBack,
    TrustGrows,
    NothingIsDatedAhead,
    Request { worker: usize, payload: u8, begin: Begin },
    LocalRequestIsRefused { worker: usize, payload: u8 },
    StoreAcknowledges(usize),
    StoreAppliesButAcknowledgementIsLost(usize),
    WriteIsDropped(usize),
    WriteIsDelayed(usize),
    DelayedWriteLands(usize),
    RereadAfterDoubt(usize),
    Start(usize),
    Renew(usize),
    RenewalUnseen(usize),
    Send(usize),
    LeaseLapsedSoNothingIsSent(usize),
    NothingCouldBeSent(usize),
    EffectHappens(u8),
    EffectHappensButAnswerIsLost(u8),
    EffectHappensAndAnswerIs500(u8),
    EffectHappensAgainBecauseProviderForgot(u8),
    NoEffectAndAnswerIs500(u8),
    EffectIsLost(u8),
    ProviderDeclines(u8),
    ProviderSaysNothingDone(u8),
    ProviderBegins(u8),
    ProviderCompletes,
    NoAnswerInTime(usize),
    StoreOutcome(usize),
    AnswerClientEarly(usize),
    Crash(usize),
    SweeperLooks(usize),
    SweeperWrites,
    ReconcilerAsks(usize),
    ReconcilerIsLiedTo(usize),
    ReconcilerHasItRefusedForGood(usize),
    ReconcilerWrites,
    OperatorResolves { cell: usize, applied: bool },
    OperatorReleases(usize),
    OperatorErases { cell: usize, erasure: Erasure },
    RecordBecomesUnreadable(usize),
    RecordBecomesReadable(usize),
    ReplicaFallsBehind,
    FailOverToReplica,
    NodeMovesToNewSecret(usize),
    OldSecretIsDropped,
    Accepted(Forbidden),
}

impl Step {
    /// Whether a clock is read in it, so that its time matters.
    fn reads_clock(self) -> bool {
        matches!(
            self,
            Self::Request { .. }
                | Self::LocalRequestIsRefused { .. }
                | Self::RereadAfterDoubt(_)
                | Self::Start(_)
                | Self::Renew(_)
                | Self::RenewalUnseen(_)
                | Self::Send(_)
                | Self::LeaseLapsedSoNothingIsSent(_)
                | Self::StoreOutcome(_)
                | Self::SweeperLooks(_)
                | Self::ReconcilerAsks(_)
                | Self::ReconcilerIsLiedTo(_)
                | Self::ReconcilerHasItRefusedForGood(_)
                | Self::ReconcilerWrites
                | Self::OperatorResolves { .. }
                | Self::OperatorReleases(_)
                | Self::OperatorErases { .. }
                | Self::Accepted(_)
        )
    }
}

/// A step, and how far the clock that was read in it was ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) step: Step,
    pub(crate) ahead: u16,
}

/// A step and the state after it.
pub(crate) type Successor = (Taken, Result<World, Violation>);

/// The context of a transition.
pub(crate) struct Context<'a> {
    model: Model<'a>,
    /// How far the clock that is read is ahead of the true time.
    ahead: u16,
    out: Vec<Successor>,
}

impl Context<'_> {
    /// Adds a step.
    fn push(&mut self, step: Step, result: Result<World, Violation>) {
        // If no clock is read, its time makes no difference.
        if self.ahead > 0 && !step.reads_clock() {
            return;
        }
        self.out.push((Taken { step, ahead: self.ahead }, result));
    }

    /// The time on the clock that is read in this step.
    fn now(&self, world: &World) -> u16 {
        world.shown() + self.ahead
    }

    /// The current time as a node judges by it.
    fn present(&self, world: &World) -> Now {
        let Clock { trust, steady_since, replaced_at, replaced_up_to, .. } = world.clock;
        let now = Now {
            trust,
            steady_since: steady_since.map(time),
            replaced_at: replaced_at.map(time),
            replaced_up_to: replaced_up_to.map(time),
            is_ahead_wrong: replaced_at.is_some() && replaced_at == steady_since,
            ..time(self.now(world)).into()
        };
        self.model.protocol.present(now)
    }

    fn stamp(&self, world: &World) -> Stamp<'static> {
        Stamp::new(self.present(world), "", "")
    }

    /// The worker dates its own write.
    fn date(&self, world: &mut World, worker: usize) {
        world.workers[worker].dating_at = if self.model.config.clock_may_be_wrong() { world.now } else { 0 };
    }

    /// How long ago the worker dated its last stored write.
    fn held_for(&self, world: &World, worker: usize) -> Duration {
        let ticks = if self.model.config.clock_may_be_wrong() {
            world.now - world.workers[worker].dated_at
        } else {
            0
        };
        self.model.protocol.held_for(Duration::from_millis(u64::from(ticks)))
    }

    /// Keeps the true date of an outcome that is about to be written.
    fn note_date(&self, world: &mut World, next: &Record) {
        let entry = (small(next.token()), shown(next.updated_at()), world.now);
        if self.model.config.clock_may_be_wrong()
            && next.is_terminal()
            && !world.observer.dated.contains(&entry)
        {
            world.observer.dated.push(entry);
        }
    }

    fn token(&self, world: &World, worker: usize) -> Token {
        let begun =
            if self.model.protocol.has(Bug::TokenIsTheWorker) { 0 } else { world.workers[worker].begun };
        Token::from_random(worker as u128 * 8 + u128::from(begun) + 1)
    }
}

/// The initial state.
pub(crate) fn initial(config: &Config) -> World {
    let idle = Worker {
        phase: Phase::Idle,
        begun: 0,
        token: Token::from_random(0),
        payload: 0,
        cell: 0,
        held: Held::NoAnswer,
        moving: false,
        dating_at: 0,
        dated_at: 0,
    };
    World {
        now: 1,
        // Far enough from zero to be set back as often as allowed.
        clock: Clock {
            offset: config.jump * u16::from(config.replacements + config.wrong_starts),
            offset_before: 0,
            trust: Trust::Trusted,
            steady_since: None,
            replaced_at: None,
            replaced_up_to: None,
        },
        cells: [Cell::Empty, Cell::Empty],
        backup: None,
        workers: vec![idle; config.workers],
        flights: Vec::new(),
        limbo: Vec::new(),
        effects: Vec::new(),
        busy: None,
        declined_at: None,
        refused: false,
        chore: None,
        question: None,
        old_secret_dropped: false,
        ended: false,
        budget: Budget {
            crashes: config.crashes,
            write_faults: config.write_faults,
            answer_faults: config.answer_faults,
            renewals: config.renewals,
            damages: config.damages,
            failovers: config.failovers,
            operator_acts: config.operator_acts,
            erasures: config.erasures,
            set_backs: u8::from(!config.assume.clock_is_not_set_back),
            replacements: config.replacements,
            wrong_starts: config.wrong_starts,
        },
        observer: Observer::default(),
    }
}

/// Everything that can happen in `world`, whatever the clocks show.
pub(crate) fn successors(world: &World, model: Model<'_>) -> Vec<Successor> {
    let mut context = Context { model, ahead: 0, out: Vec::with_capacity(16) };
    for ahead in 0..=model.config.skew {
        context.ahead = ahead;
        for worker in 0..world.workers.len() {
            worker::steps(world, worker, &mut context);
        }
        background::steps(world, &mut context);
        forbidden::steps(world, &mut context);
        erase::steps(world, &mut context);
    }
    context.ahead = 0;
    store::steps(world, &mut context);
    effect::steps(world, &mut context);
    clock::steps(world, &mut context);
    context.out
}

/// Whether effects commit with their record.
pub(crate) fn is_local(config: &Config) -> bool {
    config.class == Class::Local
}
