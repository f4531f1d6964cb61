//! The effect's own system: what happens to a request that was sent to it.

use super::worker::holding;
use super::{Context, Step};
use crate::config::Config;
use crate::invariant::Violation;
use crate::world::{Effect, Flight, Held, Phase, World, small};

pub(super) fn steps(world: &World, context: &mut Context<'_>) {
    for (index, flight) in world.flights.iter().enumerate() {
        let mut arrived = world.clone();
        arrived.flights.remove(index);
        arrives(&arrived, *flight, context);
    }
    if let Some(flight) = world.busy {
        let mut next = world.clone();
        next.busy = None;
        let result = happens(&mut next, flight, context.model.config)
            .map(|()| answered(&next, flight, Held::Done(flight.token)));
        context.push(Step::ProviderCompletes, result);
    }
}

/// `world` no longer contains the flight, which has just arrived.
fn arrives(world: &World, flight: Flight, context: &mut Context<'_>) {
    let config = context.model.config;
    let token = flight.token;
    if let Some(held) = known_answer(world, flight, config) {
        context.push(Step::EffectHappens(token), Ok(answered(world, flight, held)));
        if config.provider.deduplicates && !config.assume.provider_remembers && world.busy.is_none() {
            let mut next = world.clone();
            let result = happens(&mut next, flight, context.model.config)
                .map(|()| answered(&next, flight, Held::Done(token)));
            context.push(Step::EffectHappensAgainBecauseProviderForgot(token), result);
        }
        return;
    }
    let mut done = world.clone();
    if let Err(violation) = happens(&mut done, flight, config) {
        return context.push(Step::EffectHappens(token), Err(violation));
    }
    context.push(Step::EffectHappens(token), Ok(answered(&done, flight, Held::Done(token))));
    if config.provider.is_slow {
        let mut next = world.clone();
        next.busy = Some(flight);
        context.push(Step::ProviderBegins(token), Ok(next));
    }
    if config.provider.declines {
        let mut declined = world.clone();
        declined.declined_at = Some(world.now);
        context.push(Step::ProviderDeclines(token), Ok(answered(&declined, flight, Held::Declined)));
        context.push(Step::ProviderSaysNothingDone(token), Ok(answered(world, flight, Held::NotApplied)));
    }
    if world.budget.answer_faults > 0 {
        let faulty = |world: &World| {
            let mut next = world.clone();
            next.budget.answer_faults -= 1;
            next.observer.fault = true;
            next
        };
        context.push(Step::EffectHappensButAnswerIsLost(token), Ok(faulty(&done)));
        context.push(Step::EffectIsLost(token), Ok(faulty(world)));
        if waits(world, flight).is_some() {
            let result = answered(&faulty(&done), flight, Held::NoAnswer);
            context.push(Step::EffectHappensAndAnswerIs500(token), Ok(result));
            let result = answered(&faulty(world), flight, Held::NoAnswer);
            context.push(Step::NoEffectAndAnswerIs500(token), Ok(result));
        }
    }
}

/// The provider's answer without a new effect; `None` if there is one.
fn known_answer(world: &World, flight: Flight, config: &Config) -> Option<Held> {
    let provider = config.provider;
    if world.refused {
        return Some(Held::NotApplied);
    }
    if provider.checks_fence && world.effects.iter().any(|effect| effect.fence > flight.fence) {
        return Some(Held::NotApplied);
    }
    if !provider.deduplicates {
        return None;
    }
    if world.busy.is_some() {
        return Some(Held::StillRunning);
    }
    // Deduplicating means to answer the second request with the first answer, also if that was a refusal.
    if world.declined_at.is_some_and(|declined_at| world.now < declined_at + config.window) {
        return Some(Held::Declined);
    }
    let remembered = |effect: &&Effect| effect.cell == flight.cell && world.now < effect.at + config.window;
    world.effects.iter().rev().find(remembered).map(|effect| Held::Done(effect.token))
}

fn happens(world: &mut World, flight: Flight, config: &Config) -> Result<(), Violation> {
    // If fences are checked, an attempt's effect never follows its successor's.
    let claimed = |token: u8| world.observer.periods.iter().rposition(|(known, _)| *known == token);
    let stale = world.effects.iter().any(|effect| claimed(effect.token) > claimed(flight.token));
    if stale && config.provider.checks_fence {
        return Err(Violation::StaleAttemptActed);
    }
    let Flight { token, fence, period, cell, .. } = flight;
    world.effects.push(Effect { token, at: world.now, fence, period, cell });
    Ok(())
}

/// The worker that waits for the answer to this flight.
fn waits(world: &World, flight: Flight) -> Option<usize> {
    world
        .workers
        .iter()
        .position(|worker| matches!(worker.phase, Phase::Waiting(_)) && small(worker.token) == flight.token)
}

fn answered(world: &World, flight: Flight, held: Held) -> World {
    match waits(world, flight) {
        Some(worker) => {
            let Phase::Waiting(record) = &world.workers[worker].phase else { return world.clone() };
            holding(world, worker, record, held)
        }
        None => world.clone(),
    }
}
