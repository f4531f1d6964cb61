//! Everything that can happen next in a given state, each with the state it leads to.

mod background;
mod effect;
mod store;
mod worker;

use crate::bug::Bug;
use crate::config::Config;
use crate::invariant::{Violation, check, other_payload_is_refused, request_gets_on};
use crate::protocol::Protocol;
use crate::world::{Budget, Cell, Held, Observer, Phase, Worker, World};
use semel_core::fingerprint::Fingerprint;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{Begin, Command, Stamp};
use semel_core::outcome::{Body, Fields, Outcome, Status};
use semel_core::policy::{Class, Policy};
use semel_core::record::{State, Token};
use semel_core::time::Time;
use std::sync::{Arc, LazyLock};

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    ClockJumpsFarAhead,
    ClockIsSetBack,
    Request { worker: usize, payload: u8, begin: Begin },
    LocalRequestFails { worker: usize, payload: u8 },
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
    RecordBecomesUnreadable(usize),
    RecordBecomesReadable(usize),
    ReplicaFallsBehind,
    FailOverToReplica,
    NodeMovesToNewSecret(usize),
    OldSecretIsDropped,
}

/// A step and what it leads to.
pub(crate) type Successor = (Step, Result<World, Violation>);

/// What a transition is computed in.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) protocol: Protocol,
    pub(crate) policy: Arc<Policy>,
    out: Vec<Successor>,
}

impl Context<'_> {
    /// Notes a step; its result is checked like every state.
    fn push(&mut self, step: Step, result: Result<World, Violation>) {
        let checked = result.and_then(|world| {
            check(&world, self.config)?;
            other_payload_is_refused(&world, self)?;
            request_gets_on(&world, self)?;
            Ok(world)
        });
        self.out.push((step, checked));
    }

    pub(crate) fn command<'a>(&self, payload: &'a Fingerprint) -> Command<'a> {
        Command {
            id: CommandId::from_bytes([0; 32]),
            operation_id: OperationId::from_bytes([0; 16]),
            key_hash: KeyHash::from_bytes([0; 32]),
            caller_hash: CallerHash::from_bytes([0; 32]),
            operation: OPERATION.clone(),
            policy: Arc::clone(&self.policy),
            fingerprint: *payload,
            payload,
            generation: 0,
        }
    }

    fn token(&self, world: &World, worker: usize) -> Token {
        let begun = if self.protocol.has(Bug::TokenIsTheWorker) { 0 } else { world.workers[worker].begun };
        Token::from_random(worker as u128 * 8 + u128::from(begun) + 1)
    }
}

static OPERATION: LazyLock<Arc<str>> = LazyLock::new(|| "charge".into());

/// The payload of that number.
pub(crate) fn payload(number: u8) -> Fingerprint {
    Fingerprint::from_bytes([number; 32])
}

pub(crate) fn stamp(now: u16) -> Stamp<'static> {
    Stamp::new(time(now), "", "")
}

pub(crate) fn time(now: u16) -> Time {
    Time::from_millis(u64::from(now))
}

/// The outcome that tells of the effect of an attempt.
pub(crate) fn outcome(token: u8) -> Outcome {
    static NAMES: [u8; 256] = {
        let mut names = [0; 256];
        let mut index = 0;
        while index < 256 {
            #[expect(clippy::cast_possible_truncation, reason = "below 256")]
            {
                names[index] = index as u8;
            }
            index += 1;
        }
        names
    };
    let index = usize::from(token);
    Outcome {
        status: Status::Http(200),
        headers: Fields::default(),
        body: Body::Kept(bytes::Bytes::from_static(&NAMES[index..=index])),
        trailers: Fields::default(),
    }
}

/// Before anything has happened.
pub(crate) fn initial(config: &Config) -> World {
    let idle = Worker {
        phase: Phase::Idle,
        begun: 0,
        token: Token::from_random(0),
        payload: 0,
        cell: 0,
        held: Held::NoAnswer,
        moving: false,
    };
    World {
        now: 1,
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
            set_backs: u8::from(!config.assume.clock_is_not_set_back),
        },
        observer: Observer::default(),
    }
}

/// Everything that can happen in `world`.
pub(crate) fn successors(world: &World, config: &Config, protocol: Protocol) -> Vec<Successor> {
    let policy = Arc::clone(&world.policy(config));
    let mut context = Context { config, protocol, policy, out: Vec::with_capacity(16) };
    for worker in 0..world.workers.len() {
        worker::steps(world, worker, &mut context);
    }
    store::steps(world, &mut context);
    effect::steps(world, &mut context);
    background::steps(world, &mut context);
    clock_steps(world, &mut context);
    context.out
}

/// When the clock has jumped: far beyond every lease, deadline and retention.
const FAR_AHEAD: u16 = 1000;
/// And once more, after every owner has had its say.
const FARTHER: u16 = 2000;

fn clock_steps(world: &World, context: &mut Context<'_>) {
    let config = context.config;
    // A provider at work is done within the deadline.
    let held_up = config.assume.effects_are_timely
        && world.busy.is_some_and(|flight| world.now >= flight.sent_at + config.deadline);
    if held_up {
        return;
    }
    let at = |now: u16| {
        let mut next = world.clone();
        next.now = now;
        if config.assume.effects_are_timely {
            next.flights.retain(|flight| now <= flight.sent_at + config.deadline);
        }
        // Somebody was too slow for the lease, or is not there any more.
        let lapsed = |cell: &Cell| match cell {
            Cell::Record(record) | Cell::Unreadable(record) => match record.state() {
                State::Claimed { lease_until } | State::Processing { lease_until } => {
                    *lease_until <= time(now)
                }
                _ => false,
            },
            Cell::Empty | Cell::Moved => false,
        };
        next.observer.fault |= next.cells.iter().any(lapsed) || next.flights.len() < world.flights.len();
        next
    };
    if world.ended {
        let quiet = world.workers.iter().all(|worker| matches!(worker.phase, Phase::Idle));
        if quiet && world.now < FARTHER && world.busy.is_none() {
            context.push(Step::ClockJumpsFarAhead, Ok(at(FARTHER)));
        }
        return;
    }
    if world.now < config.horizon {
        context.push(Step::Tick, Ok(at(world.now + 1)));
    } else if world.busy.is_none() {
        // Only to see that nothing is wedged: nothing new goes wrong from here on.
        let mut next = at(FAR_AHEAD);
        next.ended = true;
        next.limbo.clear();
        next.backup = None;
        next.budget = Budget::default();
        context.push(Step::ClockJumpsFarAhead, Ok(next));
    }
    if world.budget.set_backs > 0 && world.now > 1 {
        let mut next = at(1);
        next.budget.set_backs -= 1;
        context.push(Step::ClockIsSetBack, Ok(next));
    }
}

impl World {
    /// The policy of the records that stand there, so that it is made once and shared.
    fn policy(&self, config: &Config) -> Arc<Policy> {
        let stored = self.cells.iter().find_map(Cell::record).map(|record| Arc::clone(record.policy()));
        stored.unwrap_or_else(|| config.policy())
    }

    /// The retention period that an attempt belongs to.
    pub(crate) fn period_of(&self, token: Token) -> u8 {
        let token = crate::world::small(token);
        let known = self.observer.periods.iter().rev().find(|(known, _)| *known == token);
        known.map_or(self.observer.period, |(_, period)| *period)
    }
}

/// Whether effects commit with their record.
pub(crate) fn is_local(config: &Config) -> bool {
    config.class == Class::Local
}
