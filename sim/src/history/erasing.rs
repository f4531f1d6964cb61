//! Operators who erase what is stored, while everything else goes on.
//!
//! What lives here: which key, through which node, and how much. What must never: a judgement of what comes of it.

use super::executor::Home;
use super::misfortune::id_of;
use super::network;
use super::sabotage::Sabotage;
use super::world::World;
use semel::core::id::{CommandId, OperationId};
use semel::core::machine::{Erasure, Unchanged};
use semel::core::record::StateName;
use semel::core::store::{Change, Store};
use std::sync::Arc;

/// Erasures, one after the other, until everything is to heal.
pub(crate) async fn erase(world: Arc<World>) {
    loop {
        let pause = world.span(1_000, 12_000);
        world.sleep(pause).await;
        if world.is_healed() {
            return;
        }
        let (key, node, what) = {
            let mut chance = world.chance();
            let what = if chance.percent(50) { Erasure::Response } else { Erasure::Record };
            (chance.place(world.plan.keys.len()), chance.place(world.plan.nodes), what)
        };
        erase_one(&world, key, node, what);
    }
}

/// Has a node erase: it may crash, stand still or lose its way to the store in the middle, like anybody.
fn erase_one(world: &Arc<World>, key: usize, node: usize, what: Erasure) {
    let id = id_of(world, key);
    if world.is_sabotaged(Sabotage::DeletedNotErased) {
        return delete(world, key, id);
    }
    let Some(engine) = world.engine(node) else { return };
    world.audit().erasing(key, what);
    world.note(Some(key), format!("node {node} is asked to erase the {what:?}"));
    let erasing = Arc::clone(world);
    world.spawn(Home::Node(node), async move {
        let erased = engine.erase(OperationId::of(&id), what, "operator", "asked to").await;
        let text = match erased {
            Ok(erased) => format!("node {node} has erased it: {}", erased.record.state_name()),
            Err(error) => format!("node {node} has not erased it: {error}"),
        };
        erasing.note(Some(key), text);
    });
}

/// What looks like erasing, and is not: the key is free again.
fn delete(world: &World, key: usize, id: CommandId) {
    let reading = network::standing(world, id);
    let Some(record) = reading.record() else { return };
    if matches!(record.state_name(), StateName::Succeeded | StateName::FailedReplayable) {
        drop(network::at_once(world.store.write(id, Change::Remove(Unchanged::of(record)))));
        network::see(world, Some(key), &network::standing(world, id), "an operator");
    }
}
