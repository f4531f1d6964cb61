//! The store: applies writes, also late ones, loses them, becomes unreadable, fails over.

use super::{Context, Step, is_local};
use crate::bug::Bug;
use crate::config::Config;
use crate::invariant::Violation;
use crate::model::{Content, shown, time};
use crate::protocol::Protocol;
use crate::world::{Cell, Effect, Message, World, effect_of, small};
use semel_core::machine::Expect;
use semel_core::record::{Record, State};
use std::sync::Arc;

pub(super) fn steps(world: &World, context: &mut Context<'_>) {
    for index in 0..world.limbo.len() {
        let mut next = world.clone();
        let (cell, message) = next.limbo.remove(index);
        let result =
            commit(&mut next, cell, &message, context.model.protocol, context.model.config).map(|_| next);
        context.push(Step::DelayedWriteLands(index), result);
    }
    for cell in 0..2 {
        match &world.cells[cell] {
            Cell::Record(record) if world.budget.damages > 0 => {
                let mut next = world.clone();
                next.budget.damages -= 1;
                next.cells[cell] = Cell::Unreadable(Arc::clone(record));
                context.push(Step::RecordBecomesUnreadable(cell), Ok(next));
            }
            Cell::Unreadable(record) => {
                let mut next = world.clone();
                next.cells[cell] = Cell::Record(Arc::clone(record));
                context.push(Step::RecordBecomesReadable(cell), Ok(next));
            }
            _ => {}
        }
    }
    if world.budget.failovers > 0 {
        let mut next = world.clone();
        if let Some(backup) = next.backup.take() {
            next.cells = backup;
            next.budget.failovers -= 1;
            context.push(Step::FailOverToReplica, Ok(next));
        } else {
            next.backup = Some(world.cells.clone());
            context.push(Step::ReplicaFallsBehind, Ok(next));
        }
    }
}

/// Applies a worker's write and, in class `local`, the effect: they are one transaction.
pub(super) fn commit(
    world: &mut World,
    cell: usize,
    message: &Message,
    protocol: Protocol,
    config: &Config,
) -> Result<bool, Violation> {
    let applied = apply(world, cell, message, protocol, config)?;
    let Some(write) = message.write() else { return Ok(applied) };
    if applied && world.observer.told_rolled_back == Some(small(write.next.token())) {
        return Err(Violation::RolledBackCommitted);
    }
    let State::Succeeded { outcome, .. } = write.next.state() else { return Ok(applied) };
    let is_refusal_ignored = protocol.has(Bug::EffectOutsideTransaction)
        || protocol.has(Bug::LocalConflictIgnored) && write.expect == Expect::Absent;
    if is_local(config) && (applied || is_refusal_ignored) {
        let token = small(write.next.token());
        debug_assert_eq!(effect_of(outcome), Some(token), "a transaction contains its own effect");
        let fence = u16::try_from(write.next.fence()).unwrap_or(u16::MAX);
        let period = world.period_of(write.next.token());
        world.effects.push(Effect { token, at: world.now, fence, period, cell });
    }
    Ok(applied)
}

/// Applies a write if its condition holds, and returns whether it did.
pub(super) fn apply(
    world: &mut World,
    cell: usize,
    message: &Message,
    protocol: Protocol,
    config: &Config,
) -> Result<bool, Violation> {
    let found = world.cells[cell].found();
    let applies = match message {
        Message::Swap(write) => protocol.met(&write.expect, found),
        Message::Remove(record) => protocol.met(&Expect::unchanged(record), found),
        Message::Move(write) => protocol.met(&write.expect, found) && matches!(world.cells[0], Cell::Empty),
        Message::Marker => matches!(world.cells[cell], Cell::Empty),
    };
    if !applies {
        return Ok(false);
    }
    let replaced = match &world.cells[cell] {
        Cell::Unreadable(_) => return Err(Violation::UnreadableTouched),
        Cell::Record(record) => Some(Arc::clone(record)),
        Cell::Empty | Cell::Moved => None,
    };
    if let Some(replaced) = &replaced {
        nothing_stale(message, replaced)?;
        final_stays_final(world, message, replaced, config)?;
    }
    match message {
        Message::Remove(_) => world.cells[cell] = Cell::Empty,
        Message::Marker => world.cells[cell] = Cell::Moved,
        Message::Swap(write) | Message::Move(write) => {
            if let Message::Move(_) = message {
                world.cells[0] = Cell::Moved;
            }
            observe(world, replaced.as_deref(), &write.next, config);
            world.cells[cell] = Cell::Record(Arc::new(write.next.clone()));
        }
    }
    Ok(true)
}

pub(super) fn nothing_stale(message: &Message, replaced: &Record) -> Result<(), Violation> {
    let expected = match message {
        Message::Swap(write) | Message::Move(write) => write.expect,
        Message::Remove(record) => Expect::unchanged(record),
        Message::Marker => return Ok(()),
    };
    if expected == Expect::unchanged(replaced) { Ok(()) } else { Err(Violation::StaleAttemptActed) }
}

fn final_stays_final(
    world: &World,
    message: &Message,
    replaced: &Record,
    config: &Config,
) -> Result<(), Violation> {
    if !replaced.is_terminal() || !config.assume.clock_is_not_set_back {
        return Ok(());
    }
    // A store that falls back to an older state takes only part of the observer's data along; the record itself counts.
    let settled_at = match (replaced.expires_at(), world.observer.settled_at) {
        (Some(expires_at), _) if config.failovers > 0 => shown(expires_at).saturating_sub(config.ttl),
        (_, Some(settled_at)) if config.failovers == 0 => settled_at,
        _ => return Ok(()),
    };
    // A tombstone may be extended at any time, also that of an outcome that was erased early.
    if let (State::Expired { until }, Some(State::Expired { until: next })) =
        (replaced.state(), message.write().map(|write| write.next.state()))
    {
        return if next > until { Ok(()) } else { Err(Violation::FinalOutcomeChanged) };
    }
    let becomes_tombstone =
        message.write().is_some_and(|write| matches!(write.next.state(), State::Expired { .. }));
    let kept = if becomes_tombstone { config.ttl } else { config.retention() };
    // By the first clock that judges so.
    if world.now + config.skew >= settled_at + kept { Ok(()) } else { Err(Violation::FinalOutcomeChanged) }
}

/// Updates the observer's data about an applied write.
fn observe(world: &mut World, replaced: Option<&Record>, next: &Record, config: &Config) {
    let (now, clock) = (world.now, world.shown());
    let observer = &mut world.observer;
    let token = small(next.token());
    let begins = replaced.is_none_or(|replaced| replaced.token() != next.token());
    if begins {
        let latest = now + config.skew;
        let over = observer.settled_at.is_some_and(|settled_at| latest >= settled_at + config.retention());
        if over {
            observer.period += 1;
            observer.settled_at = None;
            observer.acknowledged = None;
            observer.erased = false;
        }
        observer.periods.push((token, observer.period));
        if next.attempt() == 1 || observer.released {
            observer.bound = Some(Content::of(next).0);
        }
        observer.released = false;
    }
    if let State::Claimed { lease_until } | State::Processing { lease_until } = next.state() {
        // The write took longer than its own lease.
        observer.fault |= *lease_until <= time(clock);
    }
    if let State::Succeeded { .. } | State::FailedReplayable { .. } = next.state() {
        // Counted from the outcome's date, however long the write took.
        let stamped = observer.dated_at(next.token(), shown(next.updated_at()));
        observer.settled_at.get_or_insert(stamped);
    }
}
