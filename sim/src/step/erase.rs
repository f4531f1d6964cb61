//! An operator erases what a record stores. The key must be as taken afterwards as it was before.

use super::store::nothing_stale;
use super::{Context, Step};
use crate::bug::Bug;
use crate::config::Config;
use crate::invariant::Violation;
use crate::world::{Cell, Message, World, effect_of};
use semel_core::machine::{Erasure, Write};
use semel_core::record::{Record, State};
use semel_core::time::Time;
use std::sync::Arc;

pub(super) fn steps(world: &World, context: &mut Context<'_>) {
    if world.budget.erasures == 0 {
        return;
    }
    for cell in 0..2 {
        let Cell::Record(record) = &world.cells[cell] else { continue };
        for erasure in [Erasure::Response, Erasure::Record] {
            let Ok(write) = context.model.protocol.erase(record, erasure, context.stamp(world)) else {
                continue;
            };
            let mut next = world.clone();
            next.budget.erasures -= 1;
            let result = apply(&mut next, cell, record, write, context).map(|()| next);
            context.push(Step::OperatorErases { cell, erasure }, result);
        }
    }
}

/// The operator reads and writes in one step: what changes in between is refused by the store, as any other swap.
fn apply(
    world: &mut World,
    cell: usize,
    record: &Arc<Record>,
    write: Write,
    context: &Context<'_>,
) -> Result<(), Violation> {
    if context.model.protocol.has(Bug::ErasedByRemoval) {
        // The outcome was to go. What the trace should show is what becomes of the key.
        world.observer.acknowledged = None;
        world.cells[cell] = Cell::Empty;
        return Ok(());
    }
    if !is_faithful(record, &write.next, context.model.config) {
        return Err(Violation::FinalOutcomeChanged);
    }
    context.note_date(world, &write.next);
    let next = Arc::new(write.next.clone());
    nothing_stale(&Message::Swap(Arc::new(write)), record)?;
    world.observer.erased = true;
    world.cells[cell] = Cell::Record(next);
    Ok(())
}

/// Whether nothing but what was to be erased has changed: the attempt, and the moment at which the key is free. After a
/// change of time that moment may be later than its date.
fn is_faithful(record: &Record, next: &Record, config: &Config) -> bool {
    let is_kept_until = |old: Option<Time>, new: Option<Time>| match (old, new) {
        (Some(old), Some(new)) if config.dates_may_be_wrong() => old <= new,
        (old, new) => old == new,
    };
    let is_kept = record.token() == next.token() && is_kept_until(record.gone_at(), next.gone_at());
    let is_erased = match (record.state(), next.state()) {
        (State::Succeeded { outcome: old, .. }, State::Succeeded { outcome, .. })
        | (State::FailedReplayable { outcome: old, .. }, State::FailedReplayable { outcome, .. }) => {
            let is_replayed = is_kept_until(record.expires_at(), next.expires_at());
            is_replayed && effect_of(outcome).is_none() && outcome.status == old.status
        }
        (
            State::FailedNotReplayable { bound, .. },
            State::FailedNotReplayable { bound: kept, outcome: None, .. },
        ) => bound == kept,
        (_, State::Expired { .. }) => true,
        _ => false,
    };
    is_kept && is_erased
}
