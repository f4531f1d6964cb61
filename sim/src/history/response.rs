//! The answer to a caller in one form, for the audit and the trace.

use semel::core::classify::Ending;
use semel::core::outcome::{Body, Outcome};
use semel::core::store::Kind;
use semel::{Error, ExecuteResponse, RanAttempt, Replayed, RequestOutcome, Stored};
use std::fmt;

#[derive(Debug, Clone)]
pub(crate) enum Response {
    Ran { ending: Ending, stored: Option<Stored> },
    Replayed(Replayed),
    InProgress,
    Unknown,
    Mismatch,
    Expired,
    Exhausted,
    Unreadable,
    GivenUp(&'static str),
    CommitInDoubt,
    Store(Kind),
    Closing,
    Quota,
    ClockNotTrusted,
    Refused(String),
}

impl From<Result<ExecuteResponse, Error>> for Response {
    fn from(result: Result<ExecuteResponse, Error>) -> Self {
        match result {
            Ok(ExecuteResponse { outcome, .. }) => outcome.into(),
            Err(Error::GivenUp(why)) => Self::GivenUp(why.reason()),
            Err(Error::Store(error) | Error::StoreLost(error)) => Self::Store(error.kind()),
            // The store did not answer for so long that the current secret is not known.
            Err(Error::Secrets(error)) if error.is_retryable() => Self::Store(Kind::Unavailable),
            Err(Error::Closing) => Self::Closing,
            Err(Error::Quota(_)) => Self::Quota,
            Err(other) => Self::Refused(other.to_string()),
        }
    }
}

impl From<RequestOutcome> for Response {
    fn from(outcome: RequestOutcome) -> Self {
        match outcome {
            RequestOutcome::Ran(RanAttempt { ending, stored, .. }) => Self::Ran { ending, stored },
            RequestOutcome::Replayed(replayed) => Self::Replayed(replayed),
            RequestOutcome::InProgress { .. } => Self::InProgress,
            RequestOutcome::Unknown { .. } => Self::Unknown,
            RequestOutcome::Mismatch => Self::Mismatch,
            RequestOutcome::Expired => Self::Expired,
            RequestOutcome::AttemptsExhausted => Self::Exhausted,
            RequestOutcome::Unreadable => Self::Unreadable,
            RequestOutcome::ClockNotTrusted { .. } => Self::ClockNotTrusted,
        }
    }
}

impl Response {
    /// Whether a patient client tries again.
    pub(crate) fn is_worth_a_retry(&self) -> bool {
        matches!(
            self,
            Self::InProgress
                | Self::Unknown
                | Self::GivenUp(_)
                | Self::CommitInDoubt
                | Self::Store(_)
                | Self::Closing
                | Self::Quota
                | Self::ClockNotTrusted
                | Self::Ran { ending: Ending::NotApplied(_) | Ending::InDoubt, .. }
        )
    }

    /// Whether the call is over and ran nothing that could have had an effect.
    pub(crate) fn denies_any_effect(&self) -> bool {
        matches!(
            self,
            Self::GivenUp(_)
                | Self::Store(_)
                | Self::Closing
                | Self::Quota
                | Self::ClockNotTrusted
                | Self::Refused(_)
                | Self::Ran { ending: Ending::NotApplied(_) | Ending::NotAppliedForGood(_), .. }
        )
    }
}

pub(crate) fn outcome_of(ending: &Ending) -> Option<&Outcome> {
    match ending {
        Ending::Succeeded(outcome)
        | Ending::FailedReplayable(outcome)
        | Ending::NotAppliedForGood(outcome)
        | Ending::NotApplied(Some(outcome)) => Some(outcome),
        Ending::NotApplied(None) | Ending::InDoubt => None,
    }
}

/// A short description of an outcome.
pub(crate) struct Brief<'a>(pub(crate) &'a Outcome);

impl fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.body {
            Body::Kept(body) => write!(f, "{:?} {:?}", self.0.status, String::from_utf8_lossy(body)),
            Body::Sealed(_) => write!(f, "{:?}, sealed", self.0.status),
            Body::NotRetained => write!(f, "{:?}, not retained", self.0.status),
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ran { ending, stored } => {
                match outcome_of(ending) {
                    Some(outcome) => write!(f, "ran: {}", Brief(outcome))?,
                    None => write!(f, "ran: {ending:?}")?,
                }
                match stored {
                    Some(stored) => write!(f, ", stored as {}", stored.state),
                    None => f.write_str(", not stored yet"),
                }
            }
            Self::Replayed(Replayed { outcome, stored }) => {
                write!(f, "replayed: {} ({})", Brief(outcome), stored.state)
            }
            Self::InProgress => f.write_str("in progress"),
            Self::Unknown => f.write_str("unknown"),
            Self::Mismatch => f.write_str("mismatch"),
            Self::Expired => f.write_str("expired"),
            Self::Exhausted => f.write_str("attempts used up"),
            Self::Unreadable => f.write_str("unreadable"),
            Self::GivenUp(why) => write!(f, "given up: {why}"),
            Self::CommitInDoubt => f.write_str("it is unknown whether it committed"),
            Self::Store(kind) => write!(f, "store: {kind}"),
            Self::Closing => f.write_str("shutting down"),
            Self::Quota => f.write_str("too many new keys"),
            Self::ClockNotTrusted => f.write_str("the clock is not trusted"),
            Self::Refused(why) => write!(f, "refused: {why}"),
        }
    }
}
