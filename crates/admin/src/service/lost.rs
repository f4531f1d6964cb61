//! Why an attempt does not belong to a worker's token any more.

use super::problem::{Problem, Situation};
use semel::core::classify::Ending;
use semel::core::record::{Proof, Record, State, Token};

/// The problem of a worker that holds `token`, by what has become of its attempt.
pub(super) fn lost(record: &Record, token: Token) -> Problem {
    let (happened, next) = reason(record, token);
    let problem = Problem::new(Situation::ClaimLost, format!("{happened} {next}"));
    problem.about(record.operation_id(), Some(record.state_name()))
}

/// The problem of a worker that reports `ending` with another token than the record's.
pub(super) fn not_stored(record: &Record, ending: &Ending) -> Problem {
    let next = match ending {
        Ending::Succeeded(_) | Ending::FailedReplayable(_) | Ending::NotAppliedForGood(_) => {
            "Your report was not stored. If the record does not say the same, it is logged as a conflict: the effect may have happened \
             twice, and somebody has to look at it."
        }
        Ending::NotApplied(_) | Ending::InDoubt => "Your report was not stored; it changes nothing.",
    };
    let problem = Problem::new(Situation::ClaimLost, format!("{ANOTHER_TOKEN} {next}"));
    problem.about(record.operation_id(), Some(record.state_name()))
}

const ANOTHER_TOKEN: &str = "The record's current attempt has another token: another attempt followed after the lease of this token ran \
    out or somebody ended its attempt, or the token was never one of this command.";
const BEGIN_NOTHING: &str = "Begin nothing more under this token.";
const CLAIM_AGAIN: &str = "Do not begin it; claim again.";
const REPORT: &str = "Begin nothing more. If you know the outcome, report it with this token: nobody else has claimed the command.";

/// What happened, and what to do.
fn reason(record: &Record, token: Token) -> (&'static str, &'static str) {
    if record.token() != token {
        return (ANOTHER_TOKEN, BEGIN_NOTHING);
    }
    match record.state() {
        State::Claimed { .. } | State::Processing { .. } => ("The lease of this attempt ran out.", REPORT),
        State::Unknown { .. } => ("The attempt has ended, and whether it took effect is unknown.", REPORT),
        State::FailedNotReplayable { bound: false, .. } => {
            ("An operator released the key: this attempt has ended without effect.", CLAIM_AGAIN)
        }
        State::FailedNotReplayable { proof: Proof::NeverBegan, .. } => (
            "The lease ran out before this attempt reported that its effect begins. The attempt was ended as one without effect; \
             no other has followed yet.",
            CLAIM_AGAIN,
        ),
        State::FailedNotReplayable { proof: Proof::Owner | Proof::Verdict, .. } => {
            ("This attempt has ended without effect, as was reported about it.", CLAIM_AGAIN)
        }
        State::Succeeded { .. } | State::FailedReplayable { .. } => {
            ("This attempt already has its outcome.", "Claim again to get it; there is nothing left to do.")
        }
        State::Expired { .. } => {
            ("This attempt has ended, and its outcome is no longer stored.", BEGIN_NOTHING)
        }
    }
}
