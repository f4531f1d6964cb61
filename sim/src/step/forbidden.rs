//! Moves that must be refused, tried in every state.

use super::{Context, Step};
use crate::bug::Bug;
use crate::invariant::Violation;
use crate::model::{outcome, time};
use crate::world::World;
use semel_core::classify::Ending;
use semel_core::machine::{Erasure, Verdict};
use semel_core::outcome::Outcome;
use semel_core::record::{Record, State};

/// A move that must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forbidden {
    /// An operator settles an attempt whose owner may still act.
    ResolveWhileOwned,
    /// An owner reports an outcome of an attempt that it never started.
    OutcomeOfUnstarted,
    /// An operator releases a claim whose owner may still start.
    ReleaseWhileOwned,
    /// An operator releases a key whose effect may have happened.
    ReleaseInDoubt,
    /// An operator erases what is running, in doubt, or erased already.
    EraseUnsettled,
}

impl Forbidden {
    const ALL: [Self; 5] = [
        Self::ResolveWhileOwned,
        Self::OutcomeOfUnstarted,
        Self::ReleaseWhileOwned,
        Self::ReleaseInDoubt,
        Self::EraseUnsettled,
    ];

    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::ResolveWhileOwned => "an operator may settle an attempt whose owner may still act",
            Self::OutcomeOfUnstarted => "an owner may report an outcome of an attempt that it never started",
            Self::ReleaseWhileOwned => "an operator may release a claim whose owner may still start",
            Self::ReleaseInDoubt => "an operator may release a key whose effect may have happened",
            Self::EraseUnsettled => "an operator may erase a record that is not settled",
        }
    }
}

pub(super) fn steps(world: &World, context: &mut Context<'_>) {
    for cell in &world.cells {
        let Some(record) = cell.record() else { continue };
        for forbidden in Forbidden::ALL {
            if is_accepted(forbidden, record, world, context) {
                context.push(Step::Accepted(forbidden), Err(Violation::ForbiddenMoveAccepted));
            }
        }
    }
}

fn is_accepted(forbidden: Forbidden, record: &Record, world: &World, context: &Context<'_>) -> bool {
    let (protocol, stamp) = (context.model.protocol, context.stamp(world));
    // By the true time: every clock shows at most the skew more. If clocks may be wrong, a lease's date does not show
    // whether its owner is alive.
    let is_owned = match record.state() {
        State::Claimed { lease_until } | State::Processing { lease_until }
            if !context.model.config.dates_may_be_wrong() =>
        {
            time(world.now) < *lease_until
        }
        _ => false,
    };
    let is_claimed = matches!(record.state(), State::Claimed { .. });
    let failure = || Outcome::http(0, [("", ""); 0], "");
    match forbidden {
        Forbidden::ResolveWhileOwned if is_owned => {
            let denied = Verdict::NotApplied { asked_at: stamp.now.at };
            let verdicts = [Verdict::Applied(None), Verdict::Failed(failure()), denied, Verdict::Refused];
            verdicts.into_iter().any(|verdict| protocol.resolve(record, verdict, stamp).is_ok())
        }
        // With this bug the owner pretends to have started; its trace should continue to the consequence.
        Forbidden::OutcomeOfUnstarted if is_claimed && !protocol.has(Bug::EffectBeforeStart) => {
            let endings = [
                Ending::Succeeded(outcome(0)),
                Ending::FailedReplayable(failure()),
                Ending::NotAppliedForGood(failure()),
                Ending::InDoubt,
            ];
            endings.into_iter().any(|ending| protocol.finish(record, record.token(), ending, stamp).is_ok())
        }
        Forbidden::ReleaseWhileOwned if is_owned && is_claimed => protocol.release(record, stamp).is_ok(),
        Forbidden::ReleaseInDoubt => {
            let in_doubt = match record.state() {
                State::Claimed { .. } => record.earlier_doubt(),
                State::Processing { .. }
                | State::Unknown { .. }
                | State::Succeeded { .. }
                | State::FailedReplayable { .. } => true,
                State::FailedNotReplayable { .. } | State::Expired { .. } => false,
            };
            in_doubt && protocol.release(record, stamp).is_ok()
        }
        Forbidden::EraseUnsettled => {
            let is_settled = matches!(
                record.state(),
                State::Succeeded { .. } | State::FailedReplayable { .. } | State::FailedNotReplayable { .. }
            );
            let erases = |erasure| protocol.erase(record, erasure, stamp).is_ok();
            !is_settled && [Erasure::Response, Erasure::Record].into_iter().any(erases)
        }
        _ => false,
    }
}
