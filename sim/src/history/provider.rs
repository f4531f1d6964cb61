//! The system in which effects happen.
//!
//! A ledger that receives effects after a delay, refuses some, loses answers, and in class `downstream` repeats the
//! first answer within its window. It is reliable: an effect arrives within the work deadline or never, and what it
//! reports about an effect is true. It never looks at the store.

use super::audit::Effect;
use super::executor::TaskOwner;
use super::exercised::Exercised;
use super::sabotage::Sabotage;
use super::world::World;
use semel::Finding;
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::Record;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What the provider answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It happened, under this name.
    Applied(String),
    /// It will never happen.
    Refused,
    /// Permission denied: nothing happened.
    Denied,
    /// Not now: nothing happened.
    Busy,
    /// An error, perhaps after it happened.
    Doubt,
}

impl Reply {
    /// The result of an attempt with this answer.
    pub(crate) fn ending(&self, world: &World) -> Ending {
        let answer = |status, body: &str| Outcome::http(status, [("x-provider", "1")], body.to_owned());
        match self {
            Self::Applied(name) => Ending::Succeeded(answer(201, name)),
            Self::Refused => Ending::FailedReplayable(answer(422, "refused")),
            Self::Denied => Ending::NotApplied(Some(answer(401, "denied"))),
            Self::Busy if world.chance().percent(30) => Ending::NotAppliedForGood(answer(429, "busy")),
            Self::Busy => Ending::NotApplied(Some(answer(503, "busy"))),
            Self::Doubt if world.is_sabotaged(Sabotage::ReleaseOn5xx) => Ending::NotApplied(None),
            Self::Doubt => Ending::InDoubt,
        }
    }
}

/// An effect in flight.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) call: usize,
    pub(crate) key: usize,
    pub(crate) fence: u64,
    pub(crate) policy: Arc<Policy>,
}

/// The provider's state.
#[derive(Default)]
pub(crate) struct Ledger {
    effects: Vec<(usize, Effect)>,
    /// The first answer for each key, its attempt, and until when it is repeated.
    remembered: BTreeMap<usize, (Reply, u64, u64)>,
    barred: BTreeSet<usize>,
    on_their_way: BTreeMap<usize, u64>,
}

impl Ledger {
    /// An effect of the retention period that began with this fence.
    fn effect_since(&self, key: usize, fence: u64) -> Option<&Effect> {
        self.effects.iter().find(|(of, effect)| *of == key && effect.fence >= fence).map(|(_, effect)| effect)
    }

    /// Whether an effect may still arrive.
    pub(crate) fn is_expecting(&self, key: usize) -> bool {
        self.on_their_way.get(&key).is_some_and(|number| *number > 0)
    }
}

/// Sends an effect. The answer may never arrive.
pub(crate) fn send(world: &Arc<World>, sending: Sending) -> oneshot::Receiver<Reply> {
    let (reply, answer) = oneshot::channel();
    let faults = &world.plan.faults;
    let Sending { call, key, fence, .. } = sending;
    world.note(Some(key), format!("  call {call} sends its effect, fence {fence}"));
    if world.fault(faults.doubtful / 4) {
        let mut audit = world.audit();
        audit.tally.count(Exercised::LostEffect);
        audit.touch(Some(key));
        // Lost: the sender gets no answer.
        drop(audit);
        let deadline = sending.policy.work_deadline * 20;
        let sleep = world.sleep(deadline);
        world.spawn(TaskOwner::Outside, async move {
            sleep.await;
            drop(reply);
        });
        return answer;
    }
    let late = world.fault(faults.late_effect);
    let deadline = u64::try_from(sending.policy.work_deadline.as_millis()).unwrap_or(0);
    let there = if late { world.span(deadline * 3 / 4, deadline) } else { world.span(5, 400) };
    if late {
        let mut audit = world.audit();
        audit.tally.count(Exercised::LateEffect);
        audit.touch(Some(key));
    }
    *world.ledger().on_their_way.entry(key).or_default() += 1;
    let there = there.saturating_sub(Duration::from_millis(1));
    let arriving = Arc::clone(world);
    world.spawn(TaskOwner::Outside, async move {
        let world = arriving;
        world.sleep(there).await;
        *world.ledger().on_their_way.entry(key).or_default() -= 1;
        let answered = arrive(&world, &sending);
        let back = world.span(5, 200);
        world.sleep(back).await;
        match answered {
            Some(answered) => drop(reply.send(answered)),
            // Never: the caller has a deadline.
            None => world.sleep(sending.policy.work_deadline * 20).await,
        }
    });
    answer
}

/// An effect has arrived. Returns the answer, unless it is lost.
fn arrive(world: &Arc<World>, sending: &Sending) -> Option<Reply> {
    let Sending { call, key, fence, policy } = sending;
    let now = world.handle.now();
    let reply = take(world, sending, now);
    if policy.class == Class::Downstream && matches!(reply, Reply::Applied(_) | Reply::Refused) {
        let window = u64::try_from(policy.dedup_window.as_nanos()).unwrap_or(u64::MAX);
        let mut ledger = world.ledger();
        if ledger.remembered.get(key).is_none_or(|(_, _, until)| *until < now) {
            ledger.remembered.insert(*key, (reply.clone(), *fence, now + window));
        }
    }
    let doubtful = world.fault(world.plan.faults.doubtful);
    if doubtful {
        let mut audit = world.audit();
        audit.tally.count(Exercised::ProviderDoubt);
        audit.touch(Some(*key));
    }
    let lost = doubtful && world.chance().percent(40);
    let answered = if lost { None } else { Some(if doubtful { Reply::Doubt } else { reply }) };
    world.note(Some(*key), format!("  provider answers call {call}: {answered:?}"));
    answered
}

fn take(world: &Arc<World>, sending: &Sending, now: u64) -> Reply {
    let Sending { call, key, fence, policy } = sending;
    let remembered = world.ledger().remembered.get(key).cloned();
    if let Some((first, _, until)) = remembered
        && policy.class == Class::Downstream
        && now <= until
    {
        world.count(Exercised::Deduplicated);
        return first;
    }
    if world.ledger().barred.contains(key) {
        return Reply::Refused;
    }
    let draw = world.chance().below(100);
    if draw < 20 {
        world.count(Exercised::ProviderRefusal);
        return match draw {
            0..8 => Reply::Refused,
            8..14 => Reply::Denied,
            _ => Reply::Busy,
        };
    }
    let mut ledger = world.ledger();
    let name = format!("effect {} of key {key}", ledger.effects.len());
    let effect = Effect { call: *call, fence: *fence, name: name.clone() };
    ledger.effects.push((*key, effect.clone()));
    drop(ledger);
    world.audit().effect(now, *key, &effect);
    Reply::Applied(name)
}

/// What became of the effect of an unknown record: the truth as of some moment between question and answer.
pub(crate) async fn ask(world: &Arc<World>, record: &Record) -> Finding {
    let key = {
        let operation_id = record.operation_id();
        let of = |key: &usize| {
            let id = world.secret.command_id(&super::world::scope(), &super::world::name(*key));
            semel::core::id::OperationId::of(&id) == operation_id
        };
        (0..world.plan.keys.len()).find(of)
    };
    let (there, back) = (world.span(5, 100), world.span(5, 100));
    world.sleep(there).await;
    let Some(key) = key else { return Finding::NoAnswer };
    if world.fault(world.plan.faults.doubtful) {
        return Finding::NoAnswer;
    }
    let finding = truth(world, key, record);
    world.note(Some(key), format!("  a reconciler gets: {finding:?}"));
    world.sleep(back).await;
    finding
}

pub(crate) fn truth(world: &World, key: usize, record: &Record) -> Finding {
    let began = record.created_at().as_millis();
    let bars = world.fault(60);
    let vague = world.chance().percent(20);
    let mut ledger = world.ledger();
    if let Some(effect) = ledger.effect_since(key, began) {
        let outcome = Outcome::http(201, [("x-provider", "1")], effect.name.clone());
        return Finding::Applied((!vague).then_some(outcome));
    }
    if let Some((Reply::Refused, fence, _)) = ledger.remembered.get(&key)
        && *fence >= began
    {
        return Finding::Failed(Outcome::http(422, [("x-provider", "1")], "refused"));
    }
    if world.is_sabotaged(Sabotage::NotFoundAtOnce) {
        return Finding::Refused;
    }
    if bars {
        ledger.barred.insert(key);
        drop(ledger);
        world.count(Exercised::Barred);
        return Finding::Refused;
    }
    Finding::NotFound
}
