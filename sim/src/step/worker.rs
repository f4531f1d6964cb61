//! A worker: takes a request, claims, sends, stores the outcome, and may crash at any time.

use super::store::{apply, commit};
use super::{Context, Step, is_local};
use crate::bug::Bug;
use crate::config::Config;
use crate::invariant::{Violation, attempt_is_owned};
use crate::model::{Content, outcome, shown};
use crate::world::{Flight, Held, Message, Phase, Purpose, World, small};
use semel_core::machine::{
    self, Begin, Decision, Found, LocalEnding, NewAttempt, Route, Stage, Write, WriteResult,
};
use semel_core::outcome::Outcome;
use semel_core::policy::Class;
use semel_core::record::{Record, State};
use std::sync::Arc;

pub(super) fn steps(world: &World, worker: usize, context: &mut Context<'_>) {
    let me = &world.workers[worker];
    match &me.phase {
        Phase::Idle => {
            if me.begun < context.model.config.attempts_each && !world.ended {
                requests(world, worker, context);
            }
            if context.model.config.rotation && !me.moving {
                let mut next = world.clone();
                next.workers[worker].moving = true;
                context.push(Step::NodeMovesToNewSecret(worker), Ok(next));
            }
        }
        Phase::Writing(purpose, message) => deliveries(world, worker, *purpose, message, context),
        Phase::Unsure(purpose, message) => reread(world, worker, *purpose, message, context),
        Phase::Owning(record) => owning(world, worker, record, context),
        Phase::Waiting(record) => waiting(world, worker, record, context),
        Phase::Holding(record) => store_outcome(world, worker, record, context),
    }
    if !matches!(me.phase, Phase::Idle) && world.budget.crashes > 0 {
        let mut next = world.clone();
        next.budget.crashes -= 1;
        next.observer.fault = true;
        crash(&mut next, worker, context.model.config);
        context.push(Step::Crash(worker), Ok(next));
    }
}

/// The worker is gone. Its writes may still arrive.
pub(super) fn crash(world: &mut World, worker: usize, config: &Config) {
    let me = &mut world.workers[worker];
    let phase = std::mem::replace(&mut me.phase, Phase::Idle);
    if let Phase::Writing(purpose, _) | Phase::Unsure(purpose, _) = &phase {
        let token_is_out = *purpose == Purpose::Claim || is_local(config);
        me.begun += u8::from(token_is_out);
    }
    if let Phase::Writing(_, message) = phase {
        world.limbo.push((me.cell, message));
    }
}

fn requests(world: &World, worker: usize, context: &mut Context<'_>) {
    for number in 0..context.model.config.payloads {
        for begin in context.model.config.begin {
            let step = Step::Request { worker, payload: number, begin: *begin };
            if let Some(next) = request(world, worker, number, *begin, false, context) {
                context.push(step, Ok(next));
            }
        }
        if is_local(context.model.config)
            && world.budget.answer_faults > 0
            && let Some(mut next) = request(world, worker, number, Begin::Processing, true, context)
        {
            next.budget.answer_faults -= 1;
            context.push(Step::LocalRequestIsRefused { worker, payload: number }, Ok(next));
        }
    }
}

/// The request leads to a write, or to an answer (and then nothing changes: `None`).
fn request(
    world: &World,
    worker: usize,
    number: u8,
    begin: Begin,
    refuses: bool,
    context: &Context<'_>,
) -> Option<World> {
    let mut next = world.clone();
    let me = &mut next.workers[worker];
    let stage = if me.moving { Stage::Moving } else { Stage::Announced };
    let mut moves = false;
    me.cell = match context.model.protocol.route(stage, world.cells[0].found()) {
        _ if !context.model.config.rotation => 0,
        _ if world.old_secret_dropped => 1,
        Route::Old => 0,
        Route::New => 1,
        // Marker and record are in the same transaction.
        Route::PlantMarker if is_local(context.model.config) => {
            moves = true;
            1
        }
        Route::PlantMarker => {
            me.cell = 0;
            me.phase = Phase::Writing(Purpose::PlantMarker, Message::Marker);
            return Some(next);
        }
    };
    me.payload = number;
    me.token = context.token(world, worker);
    let payload = Content(number);
    let new_attempt = NewAttempt { token: me.token, begin };
    let found = world.cells[me.cell].found();
    let stamp = context.stamp(world);
    let decision = context.model.protocol.decide(found, &context.model.command(&payload), new_attempt, stamp);
    let (purpose, write) = match decision {
        Decision::Run(claim) if is_local(context.model.config) => {
            // Claim, effect and outcome are one transaction: only its end is visible. A failed one leaves nothing.
            let ending = if refuses {
                me.held = Held::Declined;
                LocalEnding::Refused(Outcome::http(0, [("", ""); 0], ""))
            } else {
                me.held = Held::Done(small(me.token));
                LocalEnding::Succeeded(outcome(small(me.token)))
            };
            (Purpose::Finish, context.model.protocol.commit_local(&claim, ending, stamp).ok()?)
        }
        Decision::Run(write) => (Purpose::Claim, *write),
        Decision::MarkUnknown(write) => (Purpose::MarkUnknown, *write),
        Decision::Answer(_) | Decision::Follow => return None,
    };
    let write = Arc::new(write);
    me.phase = Phase::Writing(purpose, if moves { Message::Move(write) } else { Message::Swap(write) });
    context.date(&mut next, worker);
    Some(next)
}

fn deliveries(world: &World, worker: usize, purpose: Purpose, message: &Message, context: &mut Context<'_>) {
    let cell = world.workers[worker].cell;
    let mut next = world.clone();
    let result =
        commit(&mut next, cell, message, context.model.protocol, context.model.config).and_then(|applied| {
            if applied {
                only_the_owner_writes(world, worker, purpose)?;
            }
            acknowledged(&mut next, worker, purpose, message, applied, context);
            Ok(next)
        });
    context.push(Step::StoreAcknowledges(worker), result);
    if world.budget.write_faults == 0 {
        return;
    }
    let mut unsure = world.clone();
    unsure.budget.write_faults -= 1;
    unsure.observer.fault = true;
    unsure.workers[worker].phase = Phase::Unsure(purpose, message.clone());

    let mut next = unsure.clone();
    let result = commit(&mut next, cell, message, context.model.protocol, context.model.config).map(|_| next);
    context.push(Step::StoreAppliesButAcknowledgementIsLost(worker), result);

    let mut next = unsure.clone();
    next.limbo.push((cell, message.clone()));
    context.push(Step::WriteIsDelayed(worker), Ok(next));
    context.push(Step::WriteIsDropped(worker), Ok(unsure));
}

/// An owner's write was applied: the record that it replaced must have been its own.
fn only_the_owner_writes(before: &World, worker: usize, purpose: Purpose) -> Result<(), Violation> {
    let me = &before.workers[worker];
    let owners = matches!(purpose, Purpose::Start | Purpose::Finish);
    match before.cells[me.cell].record() {
        Some(replaced)
            if owners && replaced.policy().class != Class::Local && replaced.token() != me.token =>
        {
            Err(Violation::StaleAttemptActed)
        }
        _ => Ok(()),
    }
}

fn acknowledged(
    world: &mut World,
    worker: usize,
    purpose: Purpose,
    message: &Message,
    applied: bool,
    context: &Context<'_>,
) {
    let present = context.present(world);
    let is_dated_by_another_time = context.model.config.clock_may_be_wrong()
        && matches!(message, Message::Swap(write) if machine::is_dated_ahead(&write.next, present));
    let phase = match (purpose, message, applied) {
        (Purpose::Claim, Message::Swap(write), true) => {
            let me = &mut world.workers[worker];
            (me.begun, me.dated_at) = (me.begun + 1, me.dating_at);
            if is_dated_by_another_time {
                // The time was replaced meanwhile, and nothing was sent.
                me.held = Held::NotApplied;
                Phase::Holding(Arc::new(write.next.clone()))
            } else {
                Phase::Owning(Arc::new(write.next.clone()))
            }
        }
        (Purpose::Start, Message::Swap(write), true) => {
            world.workers[worker].dated_at = world.workers[worker].dating_at;
            Phase::Owning(Arc::new(write.next.clone()))
        }
        (Purpose::Finish, Message::Swap(write) | Message::Move(write), true) => {
            world.workers[worker].begun += u8::from(write.next.policy().class == Class::Local);
            acknowledge(world, &write.next);
            Phase::Idle
        }
        // A refused finish: read the entry and continue from it.
        (Purpose::Finish, _, false) => Phase::Unsure(purpose, message.clone()),
        _ => Phase::Idle,
    };
    world.workers[worker].phase = phase;
}

/// The client gets an outcome that is stored permanently.
fn acknowledge(world: &mut World, stored: &Record) {
    if let State::Succeeded { outcome, expires_at } | State::FailedReplayable { outcome, expires_at } =
        stored.state()
    {
        let dated = shown(stored.updated_at());
        let until = world.observer.dated_at(stored.token(), dated) + (shown(*expires_at) - dated);
        world.observer.acknowledged = Some((crate::world::effect_of(outcome), until));
    }
}

fn reread(world: &World, worker: usize, purpose: Purpose, message: &Message, context: &mut Context<'_>) {
    let me = &world.workers[worker];
    let found = world.cells[me.cell].found();
    let mut next = world.clone();
    let Some(write) = message.write() else {
        next.workers[worker].phase = Phase::Idle;
        return context.push(Step::RereadAfterDoubt(worker), Ok(next));
    };
    match purpose {
        Purpose::Claim => {
            next.workers[worker].begun += 1;
            next.workers[worker].phase = match context.model.protocol.applied_claim(write, found) {
                Some(record)
                    if matches!(record.state(), State::Claimed { .. } | State::Processing { .. }) =>
                {
                    Phase::Owning(Arc::new(record.clone()))
                }
                _ => Phase::Idle,
            };
            context.push(Step::RereadAfterDoubt(worker), Ok(next));
        }
        Purpose::Start => {
            next.workers[worker].phase = match found {
                _ if context.model.protocol.was_applied(write, found) => {
                    Phase::Owning(Arc::new(write.next.clone()))
                }
                Found::Record(record) => context
                    .model
                    .protocol
                    .start(record, me.token, context.stamp(world))
                    .map_or(Phase::Idle, |write| {
                        Phase::Writing(Purpose::Start, Message::Swap(Arc::new(write)))
                    }),
                _ => Phase::Idle,
            };
            context.push(Step::RereadAfterDoubt(worker), Ok(next));
        }
        Purpose::Finish => {
            let result = reread_finish(next, worker, write, found, context);
            context.push(Step::RereadAfterDoubt(worker), result);
        }
        Purpose::MarkUnknown | Purpose::PlantMarker => {
            next.workers[worker].phase = Phase::Idle;
            context.push(Step::RereadAfterDoubt(worker), Ok(next));
        }
    }
}

fn reread_finish(
    mut next: World,
    worker: usize,
    write: &Write,
    found: Found<'_>,
    context: &Context<'_>,
) -> Result<World, Violation> {
    if is_local(context.model.config) {
        return reread_commit(next, worker, write, found, context);
    }
    if context.model.protocol.was_applied(write, found) {
        acknowledge(&mut next, &write.next);
        next.workers[worker].phase = Phase::Idle;
        return Ok(next);
    }
    if let Found::Record(record) = found {
        finish_over(next, worker, record, context)
    } else {
        next.workers[worker].phase = Phase::Idle;
        Ok(next)
    }
}

/// Settles the commit of a local command. The holder of the lock knows that the transaction is over. While it may still
/// commit, it holds the lock, and its client is answered that the outcome is not known yet.
fn reread_commit(
    mut next: World,
    worker: usize,
    write: &Write,
    found: Found<'_>,
    context: &Context<'_>,
) -> Result<World, Violation> {
    let token = next.workers[worker].token;
    match context.model.protocol.local_write_result(write, found, context.present(&next)) {
        WriteResult::Applied => acknowledge(&mut next, &write.next),
        WriteResult::NotApplied => {
            let is_over = |(_, message): &(usize, Message)| {
                message.write().is_none_or(|write| write.next.token() != token)
            };
            if context.model.protocol.has(Bug::DoubtSettledWithoutLock) && !next.limbo.iter().all(is_over) {
                next.observer.told_rolled_back = Some(small(token));
            }
            if next.effects.iter().any(|effect| effect.token == small(token)) {
                return Err(Violation::RolledBackCommitted);
            }
        }
        // The client is answered that the commit is in doubt.
        WriteResult::Unclear => {}
    }
    next.workers[worker].begun += 1;
    next.workers[worker].phase = Phase::Idle;
    Ok(next)
}

fn owning(world: &World, worker: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    let me = &world.workers[worker];
    renewals(world, worker, record, context);
    if let State::Claimed { .. } = record.state()
        && let Ok(write) = context.model.protocol.start(record, me.token, context.stamp(world))
    {
        let mut next = world.clone();
        next.workers[worker].phase = Phase::Writing(Purpose::Start, Message::Swap(Arc::new(write)));
        context.date(&mut next, worker);
        context.push(Step::Start(worker), Ok(next));
    }
    let started = matches!(record.state(), State::Processing { .. });
    if context.model.protocol.may_send(
        record,
        me.token,
        context.present(world),
        context.held_for(world, worker),
    ) {
        let mut next = world.clone();
        next.flights.push(Flight {
            token: small(me.token),
            fence: u16::try_from(record.fence()).unwrap_or(u16::MAX),
            sent_at: world.now,
            period: world.period_of(me.token),
            cell: me.cell,
        });
        next.flights.sort_unstable();
        next.workers[worker].phase = Phase::Waiting(Arc::clone(record));
        context.push(Step::Send(worker), attempt_is_owned(world, worker, &context.model).map(|()| next));
        if context.model.config.provider.declines && started {
            let next = holding(world, worker, record, Held::NotApplied);
            context.push(Step::NothingCouldBeSent(worker), Ok(next));
        }
    } else if started {
        let next = holding(world, worker, record, Held::NotApplied);
        context.push(Step::LeaseLapsedSoNothingIsSent(worker), Ok(next));
    }
}

pub(super) fn holding(world: &World, worker: usize, record: &Arc<Record>, held: Held) -> World {
    let mut next = world.clone();
    next.workers[worker].phase = Phase::Holding(Arc::clone(record));
    next.workers[worker].held = held;
    next
}

fn renewals(world: &World, worker: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    let me = &world.workers[worker];
    if world.budget.renewals == 0 {
        return;
    }
    let Ok(write) = context.model.protocol.renew(record, me.token, context.present(world)) else { return };
    let renewed = Arc::new(write.next.clone());
    let message = Message::Swap(Arc::new(write));
    let mut next = world.clone();
    next.budget.renewals -= 1;
    let result = apply(&mut next, me.cell, &message, context.model.protocol, context.model.config);
    let seen = result.map(|applied| {
        if applied {
            context.date(&mut next, worker);
            next.workers[worker].dated_at = next.workers[worker].dating_at;
            match &mut next.workers[worker].phase {
                Phase::Owning(record) | Phase::Waiting(record) => *record = renewed,
                _ => {}
            }
        }
        next
    });
    context.push(Step::Renew(worker), seen);
    if world.budget.write_faults > 0 {
        let mut next = world.clone();
        next.budget.renewals -= 1;
        next.budget.write_faults -= 1;
        next.observer.fault = true;
        next.limbo.push((me.cell, message));
        context.push(Step::RenewalUnseen(worker), Ok(next));
    }
}

fn waiting(world: &World, worker: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    renewals(world, worker, record, context);
    let token = small(world.workers[worker].token);
    let answer_may_come = world.flights.iter().any(|flight| flight.token == token)
        || world.busy.is_some_and(|flight| flight.token == token);
    if !answer_may_come || world.budget.answer_faults > 0 {
        let mut next = holding(world, worker, record, Held::NoAnswer);
        next.budget.answer_faults -= u8::from(answer_may_come);
        next.observer.fault = true;
        context.push(Step::NoAnswerInTime(worker), Ok(next));
    }
}

fn store_outcome(world: &World, worker: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    let me = &world.workers[worker];
    if context.model.protocol.has(Bug::AnswerBeforeDurable)
        && let Held::Done(token) = me.held
    {
        let mut next = world.clone();
        next.observer.acknowledged = Some((Some(token), world.now + context.model.config.ttl));
        context.push(Step::AnswerClientEarly(worker), Ok(next));
    }
    let result = finish_over(world.clone(), worker, record, context);
    context.push(Step::StoreOutcome(worker), result);
}

/// The owner stores its result over `record`, or learns that it may not.
fn finish_over(
    mut next: World,
    worker: usize,
    record: &Record,
    context: &Context<'_>,
) -> Result<World, Violation> {
    let me = &next.workers[worker];
    let held = me.held;
    let class = context.model.config.class;
    let failure = Outcome::http(0, [("", ""); 0], "");
    let ending = match held {
        Held::Done(token) => context.model.protocol.ending(class, 200, outcome(token)),
        Held::Declined => context.model.protocol.ending(class, 422, failure),
        Held::NotApplied => context.model.protocol.ending(class, 429, failure),
        Held::NoAnswer => context.model.protocol.ending(class, 500, failure),
        Held::StillRunning => context.model.protocol.ending(class, 409, failure),
    };
    let own_unknown = matches!(record.state(), State::Unknown { .. }) && record.token() == me.token;
    let certain = matches!(held, Held::Done(_) | Held::Declined);
    match context.model.protocol.finish(record, me.token, ending, context.stamp(&next)) {
        Ok(write) if own_unknown && certain && !write.next.is_terminal() => Err(Violation::OwnerShutOut),
        Ok(write) => {
            context.note_date(&mut next, &write.next);
            let message = Message::Swap(Arc::new(write));
            next.workers[worker].phase = Phase::Writing(Purpose::Finish, message);
            Ok(next)
        }
        Err(_) if own_unknown && certain => Err(Violation::OwnerShutOut),
        Err(_) => {
            next.workers[worker].phase = Phase::Idle;
            Ok(next)
        }
    }
}
