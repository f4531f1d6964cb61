//! From an answer to its outcome, or to the reason why the caller gets none.

use crate::call::answer::{ExecuteResponse, RequestOutcome, Stored};
use semel_core::classify::Ending;
use semel_core::id::OperationId;
use semel_core::outcome::{Outcome, Status};
use semel_core::record::StateName;
use std::fmt;
use std::time::Duration;

/// The outcome of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedOutcome {
    /// The operation ID.
    pub operation_id: OperationId,
    /// The outcome. Its body may not have been [retained](semel_core::outcome::Body::NotRetained).
    pub outcome: Outcome,
    /// Whether the command took effect. If not, the outcome is its refusal.
    pub succeeded: bool,
    /// Whether an earlier call ran the command.
    pub replayed: bool,
    /// The record's state and expiry. `None` if it is not stored yet: the engine keeps trying, and a crash before it
    /// succeeds leaves the outcome unknown.
    pub stored: Option<Stored>,
}

impl RecordedOutcome {
    /// The outcome of a command that took effect.
    pub fn into_success(self) -> Result<Self, Refusal> {
        if self.succeeded {
            return Ok(self);
        }
        Err(Refusal { operation_id: self.operation_id, reason: RefusalReason::Failed(Box::new(self)) })
    }
}

/// Why a call has no success for its caller. Nothing was run, unless the reason says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The operation ID, which an operator needs to find the record.
    pub operation_id: OperationId,
    /// Why.
    pub reason: RefusalReason,
}

/// Why a call has no success for its caller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The command failed, in this call or in an earlier one. Its outcome is the answer for the caller.
    Failed(Box<RecordedOutcome>),
    /// The attempt of this call took no effect, and has no outcome. The next call with the key is the next attempt.
    NotApplied,
    /// Another attempt is running.
    InProgress {
        /// Wait at least this long before a retry.
        retry_after: Duration,
    },
    /// Nobody can prove whether the effect happened.
    Unknown {
        /// Whether a retry can resolve it; see [`RequestOutcome::Unknown`].
        repeatable: bool,
    },
    /// The key is bound to another payload.
    Mismatch,
    /// The outcome has expired.
    Expired,
    /// All attempts that the policy allows ended without effect.
    AttemptsExhausted,
    /// This node cannot read the record. Answer it like [`RefusalReason::Unknown`].
    Unreadable,
    /// The decision depends on the time, and the clock is not trusted.
    ClockNotTrusted {
        /// Wait at least this long before a retry.
        retry_after: Duration,
    },
}

impl<L> ExecuteResponse<L> {
    /// The outcome of a command that took effect, in this call or in an earlier one; otherwise why there is none.
    ///
    /// ```
    /// # use semel::{Engine, Intent, Attempt, WorkResult, RecordedOutcome};
    /// # async fn example<F>(engine: Engine, intent: Intent, charge: fn(Attempt) -> F) -> Result<(), Box<dyn std::error::Error>>
    /// # where F: Future<Output = WorkResult<()>> + Send + 'static {
    /// // A mismatch, a running duplicate and an unknown outcome are errors here.
    /// let charged: RecordedOutcome = engine.execute(intent, charge).await?.into_outcome()?;
    /// # drop(charged);
    /// # Ok(())
    /// # }
    /// ```
    pub fn into_outcome(self) -> Result<RecordedOutcome, Refusal> {
        self.into_recorded()?.into_success()
    }

    /// The same, but the outcome of a command that failed is an outcome too
    /// ([`RecordedOutcome::succeeded`] is `false`).
    pub fn into_recorded(self) -> Result<RecordedOutcome, Refusal> {
        let operation_id = self.operation_id;
        let refused = |reason| Err(Refusal { operation_id, reason });
        if let Some(reason) = self.outcome.refusal_reason() {
            return refused(reason);
        }
        let (outcome, succeeded, replayed, stored) = match self.outcome {
            RequestOutcome::Replayed(replayed) => {
                let succeeded = replayed.stored.state == StateName::Succeeded;
                (replayed.outcome, succeeded, true, Some(replayed.stored))
            }
            RequestOutcome::Ran(ran) => match ran.ending {
                Ending::Succeeded(outcome) => (outcome, true, false, ran.stored),
                Ending::FailedReplayable(outcome)
                | Ending::NotAppliedForGood(outcome)
                | Ending::NotApplied(Some(outcome)) => (outcome, false, false, ran.stored),
                Ending::NotApplied(None) => return refused(RefusalReason::NotApplied),
                // The command has no effect that could be in doubt.
                Ending::InDoubt
                    if ran.stored.is_some_and(|stored| stored.state == StateName::FailedNotReplayable) =>
                {
                    return refused(RefusalReason::NotApplied);
                }
                Ending::InDoubt => return refused(RefusalReason::Unknown { repeatable: ran.repeatable }),
            },
            _ => return refused(RefusalReason::Unknown { repeatable: false }),
        };
        Ok(RecordedOutcome { operation_id, outcome, succeeded, replayed, stored })
    }
}

impl<L> RequestOutcome<L> {
    /// Why the caller gets no outcome. `None` if an attempt ran, or its outcome is replayed.
    pub fn refusal_reason(&self) -> Option<RefusalReason> {
        Some(match *self {
            // An attempt that took no effect, after one that is in doubt.
            Self::Ran(ref ran) if ran.stored.is_some_and(|stored| stored.state == StateName::Unknown) => {
                RefusalReason::Unknown { repeatable: ran.repeatable }
            }
            Self::Ran(_) | Self::Replayed(_) => return None,
            Self::InProgress { retry_after } => RefusalReason::InProgress { retry_after },
            Self::Unknown { repeatable } => RefusalReason::Unknown { repeatable },
            Self::Mismatch => RefusalReason::Mismatch,
            Self::Expired => RefusalReason::Expired,
            Self::AttemptsExhausted => RefusalReason::AttemptsExhausted,
            Self::Unreadable => RefusalReason::Unreadable,
            Self::ClockNotTrusted { retry_after } => RefusalReason::ClockNotTrusted { retry_after },
        })
    }
}

impl Refusal {
    /// Whether the same call, with the same key, may succeed later.
    pub fn is_retryable(&self) -> bool {
        match &self.reason {
            RefusalReason::NotApplied
            | RefusalReason::InProgress { .. }
            | RefusalReason::ClockNotTrusted { .. } => true,
            RefusalReason::Unknown { repeatable } => *repeatable,
            RefusalReason::Failed(failed) => {
                failed.stored.is_some_and(|stored| stored.state == StateName::FailedNotReplayable)
            }
            RefusalReason::Mismatch
            | RefusalReason::Expired
            | RefusalReason::AttemptsExhausted
            | RefusalReason::Unreadable => false,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (operation {})", self.reason, self.operation_id)
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failed) => match failed.outcome.status {
                Status::Http(status) => write!(f, "the command failed, and its outcome has the status {status}"),
                Status::Grpc(status) => {
                    write!(f, "the command failed, and its outcome has the gRPC status {status}")
                }
                Status::Value => f.write_str("the command failed"),
            },
            Self::NotApplied => f.write_str("nothing took effect; try again"),
            Self::InProgress { .. } => f.write_str("another attempt is running; try again later"),
            Self::Unknown { repeatable: true } => {
                f.write_str("nobody knows whether it took effect; try again with the same key")
            }
            Self::Unknown { repeatable: false } => f.write_str(
                "nobody knows whether it took effect; a retry is safe only after it was reconciled or resolved",
            ),
            Self::Mismatch => f.write_str(
                "nothing was run: the key is bound to another payload; use a new key for a new command",
            ),
            Self::Expired => f.write_str("nothing was run: the outcome of the command has expired"),
            Self::AttemptsExhausted => f.write_str("all attempts that the policy allows ended without effect"),
            Self::Unreadable => f.write_str("nothing was run: this node cannot read the command's record"),
            Self::ClockNotTrusted { .. } => {
                f.write_str("nothing was run, because the clock is not trusted; try again later")
            }
        }
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::answer::{RanAttempt, Replayed};

    fn answer(outcome: RequestOutcome) -> ExecuteResponse {
        ExecuteResponse { operation_id: OperationId::from_bytes([7; 16]), outcome }
    }

    fn stored(state: StateName) -> Stored {
        Stored { state, expires_at: None }
    }

    fn ran(ending: Ending, state: Option<StateName>) -> ExecuteResponse {
        let stored = state.map(stored);
        answer(RequestOutcome::Ran(RanAttempt { ending, stored, attempt: 1, repeatable: false, local: () }))
    }

    fn created() -> Outcome {
        Outcome::http(201, [("a", "b")], "created")
    }

    #[test]
    fn only_a_command_that_took_effect_has_an_outcome() {
        let replay =
            |state| answer(RequestOutcome::Replayed(Replayed { outcome: created(), stored: stored(state) }));
        let first =
            ran(Ending::Succeeded(created()), Some(StateName::Succeeded)).into_outcome().expect("it ran");
        assert!(!first.replayed && first.succeeded && first.stored.is_some());
        let unstored = ran(Ending::Succeeded(created()), None).into_outcome().expect("it ran");
        assert_eq!(unstored.stored, None);
        let again = replay(StateName::Succeeded).into_outcome().expect("it ran before");
        assert!(again.replayed && again.outcome == first.outcome);
        let refused = [
            ran(Ending::FailedReplayable(created()), Some(StateName::FailedReplayable)),
            ran(Ending::NotAppliedForGood(created()), Some(StateName::FailedReplayable)),
            ran(Ending::NotApplied(Some(created())), Some(StateName::FailedNotReplayable)),
            ran(Ending::NotApplied(None), Some(StateName::FailedNotReplayable)),
            ran(Ending::NotApplied(Some(created())), Some(StateName::Unknown)),
            ran(Ending::InDoubt, Some(StateName::Unknown)),
            ran(Ending::InDoubt, None),
            ran(Ending::InDoubt, Some(StateName::FailedNotReplayable)),
            replay(StateName::FailedReplayable),
            replay(StateName::FailedNotReplayable),
            answer(RequestOutcome::InProgress { retry_after: Duration::ZERO }),
            answer(RequestOutcome::Unknown { repeatable: true }),
            answer(RequestOutcome::Mismatch),
            answer(RequestOutcome::Expired),
            answer(RequestOutcome::AttemptsExhausted),
            answer(RequestOutcome::Unreadable),
            answer(RequestOutcome::ClockNotTrusted { retry_after: Duration::ZERO }),
        ];
        for answer in refused {
            let refusal = answer.clone().into_outcome();
            assert!(refusal.is_err(), "{answer:?}");
        }
    }

    #[test]
    fn the_outcome_of_a_failure_goes_with_its_refusal() {
        for answer in [
            ran(Ending::FailedReplayable(created()), Some(StateName::FailedReplayable)),
            ran(Ending::NotApplied(Some(created())), Some(StateName::FailedNotReplayable)),
        ] {
            let recorded = answer.clone().into_recorded().expect("an outcome");
            let refusal = answer.into_outcome().expect_err("it failed");
            let is_retryable = refusal.is_retryable();
            assert_eq!(is_retryable, recorded.stored == Some(stored(StateName::FailedNotReplayable)));
            assert_eq!(refusal.reason, RefusalReason::Failed(Box::new(recorded)));
        }
        // This attempt took no effect, but an earlier one may have.
        let doubt = ran(Ending::NotApplied(Some(created())), Some(StateName::Unknown)).into_recorded();
        assert_eq!(doubt.expect_err("in doubt").reason, RefusalReason::Unknown { repeatable: false });
    }
}
