//! Operators who erase records while everything else continues.

use super::executor::TaskOwner;
use super::network;
use super::node_faults::id_of;
use super::sabotage::Sabotage;
use super::world::World;
use semel::core::id::{CommandId, OperationId};
use semel::core::machine::{Erasure, Unchanged};
use semel::core::record::StateName;
use semel::core::store::{Change, Store};
use std::sync::Arc;

/// Erases one record after another until faults end.
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
            (chance.index(world.plan.keys.len()), chance.index(world.plan.nodes), what)
        };
        erase_one(&world, key, node, what);
    }
}

/// Lets a node erase a record; the node may crash, stop or lose its connection in the middle.
fn erase_one(world: &Arc<World>, key: usize, node: usize, what: Erasure) {
    let id = id_of(world, key);
    if world.is_sabotaged(Sabotage::DeletedNotErased) {
        return delete(world, key, id);
    }
    let Some(engine) = world.engine(node) else { return };
    world.audit().erasing(key, what);
    world.note(Some(key), format!("node {node} is asked to erase the {what:?}"));
    let erasing = Arc::clone(world);
    world.spawn(TaskOwner::Node(node), async move {
        let erased = engine.erase(OperationId::of(&id), what, "operator", "asked to").await;
        let text = match erased {
            Ok(erased) => format!("node {node} has erased it: {}", erased.record.state_name()),
            Err(error) => format!("node {node} has not erased it: {error}"),
        };
        erasing.note(Some(key), text);
    });
}

/// Looks like erasing, but frees the key.
fn delete(world: &World, key: usize, id: CommandId) {
    let reading = network::stored_entry(world, id);
    let Some(record) = reading.record() else { return };
    if matches!(record.state_name(), StateName::Succeeded | StateName::FailedReplayable) {
        drop(network::at_once(world.store.write(id, Change::Remove(Unchanged::of(record)))));
        network::see(world, Some(key), &network::stored_entry(world, id), "an operator");
    }
}
