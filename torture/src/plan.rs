//! The properties of each key's command. They follow from the key and the seed, so that a retry from any
//! process and any round is the same command.

use crate::chance::Chance;
use crate::sabotage::Sabotage;
use semel::Intent;
use semel::core::key::{self, Key};
use semel::core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use semel::core::scope::{Identity, Operation, Scope};
use semel::payload::Raw;
use std::sync::Arc;
use std::time::Duration;

/// The longest time that a dead process can block a key.
pub(crate) const LEASE_MAX: Duration = Duration::from_millis(400);

/// What the work does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// It takes effect.
    Works,
    /// It is refused permanently.
    Refuses,
    /// This many attempts have no effect; the next one does.
    FailsFirst(u32),
    /// The first attempt does not know its outcome; later ones (of a system that deduplicates) take effect.
    Doubts {
        /// Whether the effect happened nevertheless.
        applied: bool,
    },
}

/// The properties of a key's command.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The actual class of the effect's system, whatever the policy says.
    pub(crate) class: Class,
    pub(crate) policy: Arc<Policy>,
    pub(crate) reserved: bool,
    pub(crate) behaviour: Behaviour,
    /// How long the work takes until its effect, and from there to its answer.
    pub(crate) before: Duration,
    pub(crate) after: Duration,
    pub(crate) body_bytes: usize,
}

impl Plan {
    pub(crate) fn of(seed: u64, key: &str, sabotage: Option<Sabotage>) -> Self {
        let mut chance = Chance::named(seed, key);
        let class = if chance.percent(60) { Class::External } else { Class::Downstream };
        let behaviour = match chance.within(0..100) {
            0..72 => Behaviour::Works,
            72..80 => Behaviour::Refuses,
            80..93 => Behaviour::FailsFirst(u32::try_from(chance.within(1..3)).unwrap_or(1)),
            _ => Behaviour::Doubts { applied: chance.percent(50) },
        };
        let long = chance.percent(12);
        let mut span = |most| Duration::from_millis(chance.within(0..most));
        let (before, after) = if long { (span(150), span(500)) } else { (span(12), span(30)) };
        let body_bytes = match chance.within(0..10) {
            0 => 0,
            1 => 40_000 + chance.index(80_000),
            _ => chance.index(600),
        };
        let policy = Arc::new(policy(class, &mut chance, sabotage));
        let reserved = chance.percent(30);
        Self { class, policy, reserved, behaviour, before, after, body_bytes }
    }

    /// The shortest time after an effect before its key may be used for another one.
    pub(crate) fn retention_ms(&self) -> u64 {
        let tombstone = match self.policy.after_expiry {
            AfterExpiry::Refuse => self.policy.tombstone,
            AfterExpiry::RunAsNew => Duration::ZERO,
        };
        millis(self.policy.ttl.saturating_add(tombstone))
    }

    /// Whether its outcome outlives this run.
    pub(crate) fn is_kept_long(&self) -> bool {
        self.policy.ttl >= Duration::from_hours(1)
    }

    /// The body of the answer. A system that deduplicates returns the same on every attempt; otherwise it
    /// identifies the attempt.
    pub(crate) fn body(&self, key: &str, attempt: u32, fence: u64) -> Vec<u8> {
        let origin = match self.class {
            Class::Downstream => key.to_owned(),
            _ => format!("{key} {attempt} {fence}"),
        };
        let mut filler = Chance::named(0, &origin);
        let mut body = if self.body_bytes == 0 { Vec::new() } else { origin.into_bytes() };
        while body.len() < self.body_bytes {
            body.extend(filler.bits().to_le_bytes());
        }
        body
    }

    /// The request. `payload` is the key itself; anything else is a mistake that must be refused.
    pub(crate) fn intent(&self, key: &str, payload: &str) -> Result<Intent, key::Error> {
        let scope = Scope::new(Identity::api_key("torture"), Operation::named(self.class.name()));
        let payload = Raw::from(payload.to_owned());
        let intent = Intent::new(scope, Key::from_source(key)?, Arc::clone(&self.policy), payload);
        Ok(if self.reserved { intent.reserved() } else { intent })
    }
}

fn policy(class: Class, chance: &mut Chance, sabotage: Option<Sabotage>) -> Policy {
    let class = if sabotage == Some(Sabotage::TakeOver) { Class::Downstream } else { class };
    let lease = match sabotage {
        Some(Sabotage::Wedge) => Duration::from_hours(1),
        _ => LEASE_MAX.saturating_sub(Duration::from_millis(chance.within(0..200))),
    };
    let (short, shorter) = (Duration::from_millis(900), Duration::from_millis(600));
    let change = |policy: &mut PolicySettings| {
        policy.lease = lease;
        // Longer than the lease, as a policy requires.
        policy.denied_ttl = policy.denied_ttl.max(lease.saturating_mul(2));
        policy.work_deadline = Duration::from_secs(20);
        match chance.within(0..10) {
            _ if sabotage == Some(Sabotage::Wedge) => {}
            0 => (policy.ttl, policy.tombstone) = (short, short),
            1 => (policy.ttl, policy.after_expiry) = (shorter, AfterExpiry::RunAsNew),
            _ => {}
        }
    };
    Policy::new(class).with(change).expect("fit for use")
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_command_wherever_it_is_used() {
        for index in 0..500 {
            let key = format!("r1-k{index}");
            let (one, other) = (Plan::of(7, &key, None), Plan::of(7, &key, None));
            assert_eq!(format!("{one:?}"), format!("{other:?}"));
            one.policy.check().expect("a policy that is fit for use");
            Plan::of(7, &key, Some(Sabotage::Wedge))
                .policy
                .check()
                .expect("broken elsewhere than in its policy");
            assert_eq!(one.body(&key, 2, 9), other.body(&key, 2, 9));
        }
    }

    #[test]
    fn without_deduplication_two_attempts_are_distinguishable() {
        let plan = Plan { class: Class::External, body_bytes: 64, ..Plan::of(7, "r1-k1", None) };
        assert_ne!(plan.body("r1-k1", 1, 5), plan.body("r1-k1", 2, 6));
    }
}
