//! Breadth-first exploration of every reachable state, with the shortest path to each violation.
//!
//! States are identified by a 128-bit hash of their bytes; the probability that two of a hundred million are equal is
//! below 10^-22.

use crate::bug::Bug;
use crate::config::Config;
use crate::invariant::{Violation, is_settled, promises_hold};
use crate::model::Model;
use crate::protocol::Protocol;
use crate::state_bytes::StateBytes;
use crate::step::{Taken, initial, successors};
use crate::world::World;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};

/// The result of an exploration.
#[derive(Debug)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Transitions between them.
    pub transitions: usize,
    /// The length of the longest shortest path to a state.
    pub depth: usize,
    /// The violation and the shortest path to it, if there is one.
    pub violation: Option<(Violation, Trace)>,
}

/// The shortest path to a state: each step and the world after it.
#[derive(Debug)]
pub struct Trace(pub(crate) Vec<(Taken, World)>);

impl Trace {
    /// How many steps it has.
    pub fn steps(&self) -> usize {
        self.0.len()
    }
}

/// The key is a random hash already and needs no second hashing.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_le_bytes(word);
        }
    }
}

fn identify(world: &World, state_bytes: &mut StateBytes) -> (u64, u64) {
    state_bytes.0.clear();
    state_bytes.world(world);
    let digest = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        hasher.write(&state_bytes.0);
        hasher.finish()
    };
    (digest(0), digest(1))
}

/// Explores every state that `config` reaches with the real machine (or one with a bug), up to the first violation.
pub fn explore(config: &Config, bug: Option<Bug>) -> Report {
    let policies = config.policies();
    let model = Model { config, protocol: Protocol { bug }, policies: &policies };
    let mut seen: HashMap<(u64, u64), u32, BuildHasherDefault<Identity>> = HashMap::default();
    // For each state: its predecessor, and which of the successors there it is.
    let mut origins: Vec<(u32, u16)> = vec![(0, 0)];
    let mut arrows: Vec<(u32, u32)> = Vec::new();
    let mut settled: Vec<bool> = vec![true];
    let mut state_bytes = StateBytes(Vec::with_capacity(512));

    let first = initial(config);
    seen.insert(identify(&first, &mut state_bytes), 0);
    let mut level: Vec<(u32, World)> = vec![(0, first)];
    let mut depth = 0;
    while !level.is_empty() {
        let mut next_level = Vec::new();
        for (index, world) in &level {
            let steps = successors(world, model);
            for (ordinal, (step, outcome)) in steps.into_iter().enumerate() {
                let ordinal = u16::try_from(ordinal).unwrap_or(u16::MAX);
                let broken = |violation, world: &World| {
                    let mut trace = retrace(&origins, *index, model);
                    trace.0.push((step, world.clone()));
                    Some((violation, trace))
                };
                let next = match outcome {
                    Ok(next) => next,
                    Err(violation) => {
                        let violation = broken(violation, world);
                        return Report { states: seen.len(), transitions: arrows.len(), depth, violation };
                    }
                };
                let fresh = u32::try_from(origins.len()).expect("fewer than 2^32 states");
                let target = *seen.entry(identify(&next, &mut state_bytes)).or_insert(fresh);
                arrows.push((target, *index));
                if target == fresh {
                    // The checks of a state do not depend on the path to it.
                    if let Err(violation) = promises_hold(&next, &model) {
                        let violation = broken(violation, &next);
                        return Report { states: seen.len(), transitions: arrows.len(), depth, violation };
                    }
                    origins.push((*index, ordinal));
                    settled.push(is_settled(&next));
                    next_level.push((fresh, next));
                }
            }
        }
        level = next_level;
        depth += usize::from(!level.is_empty());
    }
    let violation =
        wedged(&mut arrows, &settled).map(|index| (Violation::Wedged, retrace(&origins, index, model)));
    Report { states: seen.len(), transitions: arrows.len(), depth, violation }
}

/// The first state from which no path leads to a settled one.
fn wedged(arrows: &mut [(u32, u32)], settled: &[bool]) -> Option<u32> {
    arrows.sort_unstable();
    let mut leads_on = settled.to_vec();
    let mut frontier: Vec<u32> =
        (0..).zip(settled).filter(|(_, settled)| **settled).map(|(index, _)| index).collect();
    while let Some(target) = frontier.pop() {
        let begin = arrows.partition_point(|(to, _)| *to < target);
        for (_, from) in arrows[begin..].iter().take_while(|(to, _)| *to == target) {
            if !std::mem::replace(&mut leads_on[*from as usize], true) {
                frontier.push(*from);
            }
        }
    }
    (0..).zip(&leads_on).find(|(_, leads_on)| !**leads_on).map(|(index, _)| index)
}

fn retrace(origins: &[(u32, u16)], mut index: u32, model: Model<'_>) -> Trace {
    let mut ordinals = Vec::new();
    while index != 0 {
        let (origin, ordinal) = origins[index as usize];
        ordinals.push(ordinal);
        index = origin;
    }
    let mut world = initial(model.config);
    let mut way = Vec::new();
    for ordinal in ordinals.into_iter().rev() {
        let (step, next) = successors(&world, model).swap_remove(usize::from(ordinal));
        let Ok(next) = next else { break };
        way.push((step, next.clone()));
        world = next;
    }
    Trace(way)
}
