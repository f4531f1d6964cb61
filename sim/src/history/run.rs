//! One history, from its seed to its report.
//!
//! The order of the three phases (everything may fail; nothing fails; no more requests) and what must hold at the end
//! of each.

use super::audit::Violation;
use super::chance::Chance;
use super::executor::{Executor, Stopped, TaskOwner};
use super::exercised::Tally;
use super::plan::{FORGOTTEN_AFTER, Plan, Sealing, millis};
use super::promise::Promise;
use super::response::Response;
use super::sabotage::Sabotage;
use super::trace::Trace;
use super::world::{SETTLING, World};
use super::{client, erasing, host, node_faults, ring, two_clocks};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// More steps than any history needs.
const STEPS_MAX: u64 = 300_000;

/// How often a key is requested after faults have ended.
const LAST_TRIES: usize = 40;

/// The result of one history.
#[derive(Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// The first promise that it broke.
    pub violation: Option<Violation>,
    /// What it exercised.
    pub tally: Tally,
    /// What happened.
    pub trace: Trace,
}

/// Runs one history.
pub fn play(seed: u64, sabotage: Option<Sabotage>) -> Report {
    let mut chance = Chance::new(seed);
    let plan = Plan::draw(&mut chance).with_local_keys(&mut Chance::new(seed.rotate_left(4)));
    let plan = plan.with_erasures(&mut Chance::new(seed.rotate_left(8)));
    let plan = plan.with_contradicting_clock(&mut Chance::new(seed.rotate_left(12)));
    let mut executor = Executor::new(chance.bits());
    let world = World::new(plan, chance, Arc::clone(executor.handle()), sabotage);
    for node in 0..world.plan.nodes {
        host::boot(&world, node);
    }
    world.spawn(TaskOwner::Outside, direct(Arc::clone(&world)));
    let enough = || world.is_over() || world.audit().violation().is_some();
    let stopped = catch_unwind(AssertUnwindSafe(|| executor.run(STEPS_MAX, enough)));
    match stopped {
        Ok(Stopped::Asked) => {}
        Ok(why) => world.audit().broken(Promise::Steady, None, format!("the executor stopped: {why:?}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            world.audit().broken(Promise::Steady, None, text.unwrap_or_default());
        }
    }
    executor.clear();
    world.hosts().clear();
    let audit = &mut *world.audit();
    let violation = audit.violation().cloned();
    let (tally, trace) = (std::mem::take(&mut audit.tally), std::mem::take(&mut audit.trace));
    Report { seed, violation, tally, trace }
}

/// The three phases.
async fn direct(world: Arc<World>) {
    world.spawn(TaskOwner::Outside, node_faults::cause_faults(Arc::clone(&world)));
    if world.plan.sealing == Sealing::Changed {
        world.spawn(TaskOwner::Outside, ring::change(Arc::clone(&world)));
    }
    if world.plan.operators {
        world.spawn(TaskOwner::Outside, node_faults::operate(Arc::clone(&world)));
    }
    if world.plan.erases {
        world.spawn(TaskOwner::Outside, erasing::erase(Arc::clone(&world)));
    }
    if world.plan.contradicts {
        world.spawn(TaskOwner::Outside, two_clocks::contradict(Arc::clone(&world)));
    }
    let clients: Vec<_> = (0..world.plan.clients)
        .map(|_| {
            let (done, when_done) = oneshot::channel();
            let living = Arc::clone(&world);
            world.spawn(TaskOwner::Outside, async move {
                client::live(living).await;
                let _ = done.send(());
            });
            when_done
        })
        .collect();
    for client in clients {
        let _ = client.await;
    }
    world.heal();
    if world.plan.contradicts {
        two_clocks::settle(&world).await;
    }
    world.sleep(SETTLING).await;
    for key in 0..world.plan.keys.len() {
        request_until_answered(&world, key).await;
    }
    if world.plan.erases {
        request_erased_keys(&world).await;
    }
    let longest = world.plan.keys.iter().map(|key| key.policy.ttl + key.policy.tombstone).max();
    let sweeps = world.plan.settings.sweep.every * 6;
    world.sleep(longest.unwrap_or(Duration::ZERO) + sweeps + SETTLING).await;
    let mut audit = world.audit();
    if let Some((key, what, now)) = node_faults::left_over(&world, &audit) {
        audit.broken(Promise::SweptClean, Some(key), format!("at {now:?} there is still {what}"));
    }
    drop(audit);
    world.end();
}

/// Calls about every node after all of them have forgotten. The audit judges the answers.
async fn request_erased_keys(world: &Arc<World>) {
    world.sleep(FORGOTTEN_AFTER).await;
    for key in 0..world.plan.keys.len() {
        for _ in 0..2 * world.plan.nodes {
            let payload = world.audit().bound_payload(key).unwrap_or(0);
            client::request(world, key, payload).await;
        }
    }
}

/// Calls until there is an answer that a client accepts.
async fn request_until_answered(world: &Arc<World>, key: usize) {
    let mut last = None;
    for _ in 0..LAST_TRIES {
        // The bound payload: any other is only answered with a mismatch.
        let payload = world.audit().bound_payload(key).unwrap_or(0);
        match client::request(world, key, payload).await {
            Some(response) if !response.is_worth_a_retry() => return,
            Some(Response::Ran { .. }) => return,
            // If other keys fill the store, it is not known when one of them is removed.
            Some(Response::Quota) if world.plan.has_cap() => return,
            response => last = response,
        }
        world.sleep(millis(1_000)).await;
    }
    let last = last.map_or_else(|| "no answer".to_owned(), |response| response.to_string());
    world.audit().broken(Promise::NoWedge, Some(key), format!("its last answer is \"{last}\""));
}
