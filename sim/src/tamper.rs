//! How a bug changes a record, a write or a decision before or after the real machine.

use semel_core::machine::{self, Command, Decision, Found, NewAttempt, Refusal, Stamp, Write};
use semel_core::policy::{Class, Policy, PolicySettings};
use semel_core::record::{Record, State};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// The decision if the provider deduplicated and never forgot.
pub(crate) fn as_if_remembered_for_ever<'a>(
    record: &Record,
    command: &Command<'_>,
    new_attempt: NewAttempt,
    stamp: Stamp<'_>,
) -> Option<Decision<'a>> {
    let other = under(record, |policy| {
        policy.class = Class::Downstream;
        policy.dedup_window = Duration::from_hours(1);
    });
    let decision = decided_of(&other, record, command, new_attempt, stamp);
    decision.filter(|decision| matches!(decision, Decision::Run(_)))
}

/// The write for another record; `None` if there would be none.
pub(crate) fn decided_of<'a>(
    other: &Record,
    record: &Record,
    command: &Command<'_>,
    new_attempt: NewAttempt,
    stamp: Stamp<'_>,
) -> Option<Decision<'a>> {
    let restored = |write: Box<Write>| Box::new(with_policy_of(record, *write));
    match machine::decide(Found::Record(other), command, new_attempt, stamp) {
        Decision::Run(write) => Some(Decision::Run(restored(write))),
        Decision::MarkUnknown(write) => Some(Decision::MarkUnknown(restored(write))),
        Decision::Answer(_) | Decision::Follow => None,
    }
}

/// The record under another policy.
pub(crate) fn under(record: &Record, change: impl FnOnce(&mut PolicySettings)) -> Record {
    let mut settings = PolicySettings::from(Policy::clone(record.policy()));
    change(&mut settings);
    let mut other = record.clone();
    other.set_policy(Arc::new(Policy::as_stored(settings)));
    other
}

/// The record with a window so long that the skew makes no difference.
pub(crate) fn remembered_longer(record: &Record) -> Record {
    under(record, |policy| policy.dedup_window += policy.skew)
}

pub(crate) fn with_policy_of(record: &Record, mut write: Write) -> Write {
    write.next.set_policy(Arc::clone(record.policy()));
    write
}

pub(crate) fn without_doubt(mut write: Write) -> Write {
    write.next.set_earlier_doubt(false);
    write
}

/// The result of a refused transition if the lease were dead.
pub(crate) fn as_if_dead(
    record: &Record,
    result: Result<Write, Refusal>,
    transition: impl FnOnce(&Record) -> Result<Write, Refusal>,
) -> Result<Write, Refusal> {
    if !matches!(result, Err(Refusal::LeaseAlive(_))) {
        return result;
    }
    let mut dead = record.clone();
    let lease_until = Time::default();
    dead.set_state(match record.state() {
        State::Claimed { .. } => State::Claimed { lease_until },
        _ => State::Processing { lease_until },
    });
    transition(&dead)
}

pub(crate) fn tampered(decision: Decision<'_>, tamper: impl FnOnce(&mut Record)) -> Decision<'_> {
    match decision {
        Decision::Run(mut write) => {
            tamper(&mut write.next);
            Decision::Run(write)
        }
        other => other,
    }
}
