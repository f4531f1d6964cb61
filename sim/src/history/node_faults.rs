//! Faults of nodes, the store and its clock at random times, and operators who clean up.

use super::audit::Audit;
use super::executor::TaskOwner;
use super::exercised::Exercised;
use super::host;
use super::network;
use super::plan::PlannedFault;
use super::provider;
use super::ring;
use super::world::{self, World};
use semel::Finding;
use semel::core::id::CommandId;
use semel::core::machine::{self, Stamp, Verdict, Write};
use semel::core::record::StateName;
use semel::core::store::Store;
use semel::core::time::Time;
use std::sync::Arc;

/// Causes one fault after another, until faults end.
pub(crate) async fn cause_faults(world: Arc<World>) {
    loop {
        let pause = world.span(500, 12_000);
        world.sleep(pause).await;
        if world.is_healed() || world.plan.planned_faults.is_empty() {
            return;
        }
        let (fault, node) = {
            let mut chance = world.chance();
            let planned_faults = &world.plan.planned_faults;
            (planned_faults[chance.index(planned_faults.len())], chance.index(world.plan.nodes))
        };
        match fault {
            PlannedFault::Crash => world.crash(node, "power"),
            PlannedFault::Pause => world.pause(node),
            PlannedFault::Shutdown => shut_down(&world, node),
            PlannedFault::Outage => {
                let span = world.span(200, 6_000);
                world.begin_outage(span);
            }
            PlannedFault::ClockJump => world.turn_clock(),
            // Before any node has written its mark, no node could know.
            PlannedFault::WrongClock if network::mark(&world).is_some() => world.put_clock_wrong(),
            PlannedFault::WrongClock => {}
            PlannedFault::Damage => damage(&world),
        }
    }
}

/// A node is shut down properly, and started again.
pub(crate) fn shut_down(world: &Arc<World>, node: usize) {
    let Some(engine) = world.engine(node) else { return };
    world.count(Exercised::Shutdown);
    world.note(None, format!("node {node} is shut down"));
    world.audit().node_fails(node);
    world.hosts()[node].engine = None;
    let patience = world.span(0, 1_500);
    let closing = Arc::clone(world);
    world.spawn(TaskOwner::Node(node), async move {
        let report = engine.shutdown(patience).await;
        drop(engine);
        for _ in 0..report.cut_off {
            closing.count(Exercised::CutOff);
        }
        closing.note(None, format!("node {node} reports {report:?}"));
        closing.take_down(node);
        let restarting = Arc::clone(&closing);
        closing.spawn(TaskOwner::Outside, async move {
            restarting.sleep(super::plan::millis(500)).await;
            host::boot(&restarting, node);
        });
    });
}

/// A byte is damaged.
fn damage(world: &Arc<World>) {
    let key = world.chance().index(world.plan.keys.len());
    let mut audit = world.audit();
    let Some(record) = audit.stored_record(key) else { return };
    let id = id_of(world, key);
    let text = format!("the entry is damaged: {}", record.state_name());
    if !audit.is_damaged(key) && world.store.overwrite(id, &b"rot"[..]).unwrap_or(false) {
        audit.note(world.handle.now(), Some(key), text);
        audit.damaged(key);
    }
}

pub(crate) fn id_of(world: &World, key: usize) -> CommandId {
    world.secret.command_id(&world::scope(), &world::name(key))
}

/// Operators, who look at unknown records and truthfully settle what they can.
pub(crate) async fn operate(world: Arc<World>) {
    while !world.is_over() {
        let pause = world.span(2_000, 10_000);
        world.sleep(pause).await;
        for key in 0..world.plan.keys.len() {
            resolve(&world, key).await;
        }
    }
}

async fn resolve(world: &Arc<World>, key: usize) {
    let id = id_of(world, key);
    let reading = network::stored_entry(world, id);
    let Some(record) = reading.record() else { return };
    if !matches!(record.state_name(), StateName::Unknown | StateName::Processing) {
        return;
    }
    let asked_at = world.store_now();
    let verdict = match provider::truth(world, key, record) {
        Finding::Applied(outcome) => Verdict::Applied(outcome),
        Finding::Failed(outcome) => Verdict::Failed(outcome),
        Finding::Refused => Verdict::Refused,
        // An operator also looks at effects in flight.
        Finding::NotFound if !world.ledger().is_expecting(key) => Verdict::NotApplied { asked_at },
        Finding::NotFound | Finding::NoAnswer => return,
    };
    let thinking = world.span(1, 3_000);
    world.sleep(thinking).await;
    let stamp = Stamp::new(world.store_now(), "operator", "looked at the ledger");
    let Ok(write) = machine::resolve(record, ring::sealed(world, id, verdict), stamp) else { return };
    settle(world, key, id, &write);
}

fn settle(world: &Arc<World>, key: usize, id: CommandId, write: &Write) {
    let before = network::stored_entry(world, id).entry;
    drop(network::at_once(world.store.write(id, write.into())));
    let after = network::stored_entry(world, id);
    if after.entry != before {
        world.count(Exercised::Resolved);
        network::see(world, Some(key), &after, "an operator");
    }
}

/// Entries that are left although everything should be gone.
pub(crate) fn left_over(world: &World, audit: &Audit) -> Option<(usize, String, Time)> {
    (0..world.plan.keys.len()).find_map(|key| {
        let record = audit.stored_record(key).filter(|_| !audit.is_damaged(key))?;
        Some((key, format!("{record:?}"), world.store_now()))
    })
}
