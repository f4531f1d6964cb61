//! A node that starts with another clock than a live one: it has to give way, also after restarts and when it is alone.
//!
//! It is ahead by less than all nodes may be down, so that nothing but the live node's time shows that it is wrong. If
//! that node falls silent too soon, nobody could know, and the clock is put right.

use super::exercised::Exercised;
use super::network;
use super::plan::millis;
use super::promise::Promise;
use super::world::World;
use semel::core::time::Time;
use std::sync::{Arc, PoisonError};

/// How far the clock is ahead: further than any node is silent, and not so far that its dates would count as untrue.
const AHEAD_MILLIS: (u64, u64) = (38_000, 44_000);

/// How long the other node may be silent before the newcomer may conclude that it is gone, with time to spare.
const SILENCE_NANOS: u64 = 900_000_000;

/// The mark: who wrote it when, and whether a node has given way.
#[derive(Clone, PartialEq)]
struct Seen {
    node: String,
    now: Time,
    has_contradiction: bool,
}

fn seen(world: &World) -> Option<Seen> {
    let mark: serde_json::Value = serde_json::from_slice(&network::mark(world)?).ok()?;
    Some(Seen {
        node: mark["node"].as_str()?.to_owned(),
        now: Time::from_millis(mark["now_ms"].as_u64()?),
        has_contradiction: !mark["contradiction"].is_null(),
    })
}

/// Starts one node after another with another clock, until faults end.
pub(crate) async fn contradict(world: Arc<World>) {
    loop {
        let pause = world.span(3_000, 12_000);
        world.sleep(pause).await;
        if world.is_healed() {
            return;
        }
        let (node, ahead) = {
            let mut chance = world.chance();
            (chance.index(world.plan.nodes), chance.between(AHEAD_MILLIS.0, AHEAD_MILLIS.1))
        };
        let is_up =
            |node: &usize| world.engine(*node).is_some_and(|engine| engine.clock_status().is_trusted());
        let others = (0..world.plan.nodes).filter(|other| *other != node && is_up(other)).count();
        if others == 0
            || world.hosts()[node].is_down
            || seen(&world).is_none_or(|mark| mark.has_contradiction)
        {
            continue;
        }
        world.audit().two_clocks();
        *world.old_mark.lock().unwrap_or_else(PoisonError::into_inner) = network::mark(&world);
        // It is gone before its clock changes: it starts on another machine.
        world.take_down(node);
        world.set_clock_of(node, ahead);
        let gone_for = world.span(50, 500);
        world.sleep(gone_for).await;
        super::host::boot(&world, node);
        if has_given_way(&world, node).await {
            stay(&world, node).await;
            world.set_clock_of(node, 0);
        } else {
            // Nobody contradicted it, so it would go on with that time: it is set up anew, with the right clock.
            let is_up = !world.hosts()[node].is_down;
            if is_up {
                world.take_down(node);
            }
            world.set_clock_of(node, 0);
            if is_up {
                super::host::boot(&world, node);
            }
        }
    }
}

/// Whether the node gives way before the others fall silent.
async fn has_given_way(world: &Arc<World>, node: usize) -> bool {
    let mut last = (world.handle.now(), seen(world));
    loop {
        world.sleep(millis(50)).await;
        let mark = seen(world);
        let Some(mark) = mark.filter(|_| !world.is_healed()) else { return false };
        if is_of_another_time(world, &mark) {
            return false;
        }
        if mark.has_contradiction {
            world.count(Exercised::GaveWay);
            world.note(None, format!("node {node} has given way"));
            return true;
        }
        if last.1.as_ref() != Some(&mark) {
            last = (world.handle.now(), Some(mark));
        } else if world.handle.now() - last.0 > SILENCE_NANOS {
            return false;
        }
    }
}

/// Whatever happens to the others, the node neither writes its time nor trusts its clock.
async fn stay(world: &Arc<World>, node: usize) {
    let until = world.handle.now() + u64::try_from(world.span(2_000, 20_000).as_nanos()).unwrap_or(0);
    while world.handle.now() < until && !world.is_healed() {
        world.sleep(millis(50)).await;
        let Some(mark) = seen(world) else { return };
        let is_trusted = world.engine(node).is_some_and(|engine| engine.clock_status().is_trusted());
        if is_trusted && !world.is_healed() {
            let how = format!("node {node} trusts a clock that another node contradicted");
            return world.audit().broken(Promise::NewcomerGivesWay, None, how);
        }
        if is_of_another_time(world, &mark) {
            return;
        }
    }
}

/// Whether the mark is of a time that is ahead of the right one.
fn is_of_another_time(world: &World, mark: &Seen) -> bool {
    let now = world.store_now();
    let is_ahead = mark.now > now + millis(5_000);
    if is_ahead {
        let how = format!("{} wrote {:?} at {now:?}", mark.node, mark.now);
        world.audit().broken(Promise::NewcomerGivesWay, None, how);
    }
    is_ahead
}

/// Faults have ended. If all nodes were silent for so long that even a right clock is in question, an operator confirms
/// it.
pub(crate) async fn settle(world: &Arc<World>) {
    world.sleep(millis(10_000)).await;
    for node in 0..world.plan.nodes {
        let Some(engine) = world.engine(node) else { continue };
        if engine.clock_status().is_trusted() {
            continue;
        }
        world.note(None, format!("an operator confirms the clock at node {node}"));
        world.audit().confirmed();
        if engine.confirm_clock("operator", "compared with a time server").await.is_ok() {
            return;
        }
    }
}
