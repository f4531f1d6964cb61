//! Sweeper, reconciler, operator, and the change of the hashing secret.

use super::store::apply;
use super::{Context, Step, is_local};
use crate::model::{outcome, time};
use crate::world::{Cell, Chore, Message, Phase, Question, World};
use semel_core::machine::{self, Due, Verdict};
use semel_core::record::{Doubt, Record, State};
use std::sync::Arc;

pub(super) fn steps(world: &World, context: &mut Context<'_>) {
    for cell in 0..2 {
        if let Cell::Record(record) = &world.cells[cell] {
            sweeper_looks(world, cell, record, context);
            reconciler_asks(world, cell, record, context);
            operator_acts(world, cell, record, context);
        }
    }
    if let Some(chore) = &world.chore {
        let mut next = world.clone();
        next.chore = None;
        let result =
            apply(&mut next, chore.cell, &chore.message, context.model.protocol, context.model.config);
        context.push(Step::SweeperWrites, result.map(|_| next));
    }
    if let Some(question) = &world.question {
        reconciler_writes(world, question, context);
    }
    if context.model.config.rotation && !world.old_secret_dropped {
        old_secret_is_dropped(world, context);
    }
}

fn sweeper_looks(world: &World, cell: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    if !context.model.config.sweeper || world.chore.is_some() {
        return;
    }
    let (now, stamp) = (context.present(world), context.stamp(world));
    let message = match context.model.protocol.due(record, now) {
        Due::Lapsed => context.model.protocol.lapse(record, stamp).map(Arc::new).map(Message::Swap),
        Due::Expire => context.model.protocol.expire(record, stamp).map(Arc::new).map(Message::Swap),
        Due::Purge => context.model.protocol.purge(record, now).map(|_| Message::Remove(Arc::clone(record))),
        Due::Extend => context.model.protocol.extend(record, stamp).map(Arc::new).map(Message::Swap),
        Due::Redate => machine::redate(record, stamp).map(Arc::new).map(Message::Swap),
        Due::Probe | Due::Nothing => return,
    };
    if let Ok(message) = message {
        let mut next = world.clone();
        next.chore = Some(Chore { cell, message });
        context.push(Step::SweeperLooks(cell), Ok(next));
    }
}

/// The effect that the provider sees for the attempt's period.
fn effect_seen(world: &World, cell: usize, record: &Record) -> Option<u8> {
    let period = world.period_of(record.token());
    let mut effects = world.effects.iter();
    effects.find(|effect| effect.period == period && effect.cell == cell).map(|effect| effect.token)
}

fn reconciler_asks(world: &World, cell: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    let unknown = matches!(record.state(), State::Unknown { .. });
    if !context.model.config.reconciler || !unknown || world.question.is_some() {
        return;
    }
    let found = effect_seen(world, cell, record);
    let asked_at = context.now(world) - world.clock.offset;
    let ask = |found| {
        let mut next = world.clone();
        next.question = Some(Question { cell, record: Arc::clone(record), asked_at, found });
        next
    };
    context.push(Step::ReconcilerAsks(cell), Ok(ask(found)));
    if !context.model.config.assume.verdicts_are_true {
        let lie = if found.is_some() { None } else { Some(machine_token(record)) };
        context.push(Step::ReconcilerIsLiedTo(cell), Ok(ask(lie)));
    }
    if context.model.config.provider.refuses_for_good && !world.refused && found.is_none() {
        let mut next = ask(None);
        next.refused = true;
        context.push(Step::ReconcilerHasItRefusedForGood(cell), Ok(next));
    }
}

fn machine_token(record: &Record) -> u8 {
    crate::world::small(record.token())
}

fn reconciler_writes(world: &World, question: &Question, context: &mut Context<'_>) {
    let verdict = match question.found {
        Some(token) => Verdict::Applied(Some(outcome(token))),
        None if world.refused => Verdict::Refused,
        None => Verdict::NotApplied { asked_at: time(question.asked_at + world.clock.offset) },
    };
    let mut next = world.clone();
    next.question = None;
    let result = match context.model.protocol.reconcile(&question.record, verdict, context.stamp(world)) {
        Ok(write) => {
            context.note_date(&mut next, &write.next);
            let message = Message::Swap(Arc::new(write));
            apply(&mut next, question.cell, &message, context.model.protocol, context.model.config)
                .map(|_| next)
        }
        // Too early to count: it asks again later.
        Err(_) => Ok(next),
    };
    context.push(Step::ReconcilerWrites, result);
}

fn operator_acts(world: &World, cell: usize, record: &Arc<Record>, context: &mut Context<'_>) {
    if world.budget.operator_acts == 0 {
        return;
    }
    let mut acted = world.clone();
    acted.budget.operator_acts -= 1;
    let seen = effect_seen(world, cell, record);
    let in_flight = !world.flights.is_empty() || world.busy.is_some();
    let lies = !context.model.config.assume.verdicts_are_true;
    for applied in [true, false] {
        // A truthful operator sees what the provider sees. Only if the owner ended its attempt itself, with none in
        // doubt before it, may an operator state at once that nothing is in flight.
        let at_once = matches!(record.state(), State::Unknown { doubt: Doubt::Owner, .. });
        let is_true = if applied {
            seen.is_some()
        } else {
            seen.is_none() && !(at_once && !record.earlier_doubt() && in_flight)
        };
        if !is_true && !lies {
            continue;
        }
        let verdict = if applied {
            // The operator only knows that it happened; the answer itself is lost.
            Verdict::Applied(None)
        } else {
            Verdict::NotApplied { asked_at: context.stamp(world).now.at }
        };
        if let Ok(write) = context.model.protocol.resolve(record, verdict, context.stamp(world)) {
            let mut next = acted.clone();
            context.note_date(&mut next, &write.next);
            let message = Message::Swap(Arc::new(write));
            let result = apply(&mut next, cell, &message, context.model.protocol, context.model.config);
            context.push(Step::OperatorResolves { cell, applied }, result.map(|_| next));
        }
    }
    if let Ok(write) = context.model.protocol.release(record, context.stamp(world)) {
        let mut next = acted;
        let message = Message::Swap(Arc::new(write));
        let result =
            apply(&mut next, cell, &message, context.model.protocol, context.model.config).map(|applied| {
                next.observer.released |= applied;
                next
            });
        context.push(Step::OperatorReleases(cell), result);
    }
}

/// Every node claims under the new secret, none still works under the old one, and only a marker is left there.
fn old_secret_is_dropped(world: &World, context: &mut Context<'_>) {
    let confirmed = world
        .workers
        .iter()
        .all(|worker| worker.moving && (worker.cell == 1 || matches!(worker.phase, Phase::Idle)));
    // A change of the secret waits longer than a transaction takes from its last write to its end.
    let commits = is_local(context.model.config) && !world.limbo.is_empty();
    if confirmed && !commits && matches!(world.cells[0], Cell::Empty | Cell::Moved) {
        let mut next = world.clone();
        next.old_secret_dropped = true;
        next.cells[0] = Cell::Empty;
        context.push(Step::OldSecretIsDropped, Ok(next));
    }
}
