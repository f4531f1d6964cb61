//! Time: how it passes, and what happens to the clock that all nodes use.
//!
//! Nodes do not follow a jump while they run, so it needs no step here. The machine has to handle a time that an
//! operator's confirmation replaced, and nodes that start with a wrong clock.

use super::worker::crash;
use super::{Context, Step};
use crate::model::time;
use crate::world::{Budget, Cell, Clock, Phase, World};
use semel_core::machine;
use semel_core::record::{Record, State};
use semel_core::time::Trust;
use std::sync::Arc;

/// The time after the jump: far beyond every lease, deadline and retention.
const FAR_AHEAD: u16 = 1000;
/// A second jump, after every owner could act.
const FARTHER: u16 = 2000;

pub(super) fn steps(world: &World, context: &mut Context<'_>) {
    clock_changes(world, context);
    let config = context.model.config;
    // A working provider is done within the deadline.
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
        // Somebody was too slow for the lease, or is gone.
        let lapsed = |cell: &Cell| match cell {
            Cell::Record(record) | Cell::Unreadable(record) => match record.state() {
                State::Claimed { lease_until } | State::Processing { lease_until } => {
                    *lease_until <= time(next.shown())
                }
                _ => false,
            },
            Cell::Empty | Cell::Moved => false,
        };
        let is_late = next.cells.iter().any(lapsed) || next.flights.len() < world.flights.len();
        next.observer.fault |= is_late;
        next
    };
    let is_trusted = world.clock.trust == Trust::Trusted;
    if world.ended {
        let quiet = world.workers.iter().all(|worker| matches!(worker.phase, Phase::Idle));
        if quiet && is_trusted && world.now < FARTHER && world.busy.is_none() {
            context.push(Step::ClockJumpsFarAhead, Ok(at(FARTHER)));
        }
        return;
    }
    if world.now < config.horizon {
        context.push(Step::Tick, Ok(at(world.now + 1)));
    } else if is_trusted && world.busy.is_none() {
        // Only to show that nothing is stuck: no new faults from here on.
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

/// The clock goes wrong, is confirmed, and becomes right again.
fn clock_changes(world: &World, context: &mut Context<'_>) {
    let clock = world.clock;
    if clock.trust == Trust::Starting {
        // As soon as possible: what is safe then is safe later too.
        let mut next = world.clone();
        next.clock.trust = Trust::Trusted;
        context.push(Step::TrustGrows, Ok(next));
    }
    let present = context.present(world);
    let is_ahead = |record: &Arc<Record>| machine::is_dated_ahead(record, present);
    let all_settled = !world.cells.iter().filter_map(Cell::record).any(is_ahead);
    let so_far = world.shown() + context.model.config.skew;
    let is_later = clock.replaced_up_to.is_some_and(|up_to| up_to > so_far);
    if is_later && present.can_judge_leases() && all_settled {
        let mut next = world.clone();
        next.clock.replaced_up_to = Some(so_far);
        context.push(Step::NothingIsDatedAhead, Ok(next));
    }
    if clock.trust == Trust::Untrusted {
        let mut next = world.clone();
        next.clock.offset = clock.offset_before;
        restart_leases(&mut next);
        context.push(Step::ClockComesBack, Ok(next));
    }
    for ahead in [true, false] {
        replaced(world, ahead, context);
        started(world, ahead, context);
    }
}

/// An operator confirms a clock with another time.
fn replaced(world: &World, ahead: bool, context: &mut Context<'_>) {
    let clock = world.clock;
    if world.budget.replacements > 0 {
        let mut next = world.clone();
        next.budget.replacements -= 1;
        next.observer.fault = true;
        next.clock.offset = moved(clock.offset, context.model.config.jump, ahead);
        restart_leases(&mut next);
        next.clock.replaced_at = Some(next.shown());
        next.clock.replaced_up_to = clock.replaced_up_to.max(Some(world.shown()));
        context.push(Step::ClockIsReplaced { ahead }, Ok(next));
    }
}

/// All nodes restart with a clock that shows another time.
fn started(world: &World, ahead: bool, context: &mut Context<'_>) {
    let clock = world.clock;
    if world.budget.wrong_starts > 0 {
        let mut next = world.clone();
        next.budget.wrong_starts -= 1;
        next.observer.fault = true;
        for worker in 0..next.workers.len() {
            crash(&mut next, worker, context.model.config);
        }
        if context.model.config.assume.wrong_start_is_noticed {
            // If the clock is behind the store's mark, time continues from the mark; otherwise from the clock.
            let offset =
                if ahead { moved(clock.offset, context.model.config.jump, true) } else { clock.offset };
            // No node writes the time into the store while it is not trusted.
            let is_known = clock.trust != Trust::Untrusted;
            let offset_before = if is_known { clock.offset } else { clock.offset_before };
            next.clock = Clock { offset, offset_before, trust: Trust::Untrusted, ..clock };
        } else {
            next.clock.offset = moved(clock.offset, context.model.config.jump, ahead);
            restart_leases(&mut next);
        }
        context.push(Step::NodesStartWithAnotherClock { ahead }, Ok(next));
    }
}

fn moved(offset: u16, jump: u16, ahead: bool) -> u16 {
    if ahead { offset + jump } else { offset - jump }
}

/// Dates before this moment may be wrong.
fn restart_leases(world: &mut World) {
    world.clock.trust = Trust::Starting;
    world.clock.steady_since = Some(world.shown());
}
