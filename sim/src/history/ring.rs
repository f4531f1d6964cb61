//! The keys for sealing outcomes, and how they are changed while everything runs.
//!
//! The three rings that nodes have one after the other, the rolling restart from each to the next, and the outcomes
//! that an operator seals. By the rule for operators, no step starts before every node has completed the one before.

use super::exercised::Exercised;
use super::node_faults;
use super::plan::{Sealing, millis};
use super::sabotage::Sabotage;
use super::world::World;
use semel::Random;
use semel::core::id::CommandId;
use semel::core::machine::Verdict;
use semel::core::outcome::Outcome;
use semel::sealing::{KeyRing, SealingKey};
use std::sync::Arc;

/// The last of the rings.
pub(crate) const LAST: u64 = 2;

fn key(name: &str, byte: u8) -> SealingKey {
    SealingKey::new(name, &[byte; 32]).expect("a key of 32 bytes")
}

/// The ring at this stage: the old key; the new one behind it; the new one in front.
fn ring(world: &World, stage: u64) -> KeyRing {
    let (old, new) = (key("old", 1), key("new", 2));
    match stage {
        0 => KeyRing::new(old),
        1 => KeyRing::new(old).and(new).expect("another name"),
        _ if world.is_sabotaged(Sabotage::RingCutShort) => KeyRing::new(new),
        _ => KeyRing::new(new).and(old).expect("another name"),
    }
}

/// What a node that starts now seals and opens with, if outcomes are sealed.
pub(crate) fn of_node(world: &World, stage: u64) -> Option<KeyRing> {
    (world.plan.sealing != Sealing::Off).then(|| ring(world, stage))
}

/// A ring that opens every outcome, for the audit.
pub(crate) fn master() -> KeyRing {
    KeyRing::new(key("new", 2)).and(key("old", 1)).expect("another name")
}

/// Changes the keys on every node, one restart at a time.
pub(crate) async fn change(world: Arc<World>) {
    for stage in 1..=LAST {
        let pause = world.span(1_000, 12_000);
        world.sleep(pause).await;
        world.note(None, format!("nodes that start get ring {stage}"));
        world.audit().ring = stage;
        for node in 0..world.plan.nodes {
            while world.hosts()[node].ring < stage {
                if world.is_healed() {
                    return;
                }
                node_faults::shut_down(&world, node);
                world.sleep(millis(700)).await;
            }
            world.count(Exercised::RingChanged);
        }
    }
}

/// A verdict in the form in which an operator stores it.
pub(crate) fn sealed(world: &Arc<World>, id: CommandId, verdict: Verdict) -> Verdict {
    let stage = world.audit().ring;
    let Some(ring) = of_node(world, stage).filter(|_| !world.is_sabotaged(Sabotage::UnsealedVerdict)) else {
        return verdict;
    };
    let seal = |outcome: Outcome| ring.seal(&id, &outcome, &Drawn(Arc::clone(world)));
    match verdict {
        Verdict::Applied(outcome) => Verdict::Applied(outcome.map(seal)),
        Verdict::Failed(outcome) => Verdict::Failed(seal(outcome)),
        Verdict::NotApplied { .. } | Verdict::Refused => verdict,
    }
}

/// Randomness from the history's seed.
pub(crate) struct Drawn(pub(crate) Arc<World>);

impl Random for Drawn {
    fn bits(&self) -> u128 {
        let mut chance = self.0.chance();
        (u128::from(chance.bits()) << 64) | u128::from(chance.bits())
    }
}
