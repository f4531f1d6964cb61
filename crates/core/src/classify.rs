//! What an answer says about the effect: it happened, was refused, did not happen, or nobody knows.
//!
//! The table from class, status and the service's own statement to an ending. It reads no headers or bodies: the
//! protocol's adapter builds an [`Answer`].

use crate::outcome::{Outcome, Status};
use crate::policy::Class;
use std::fmt;

/// What an answer means for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// The effect happened. The answer will be replayed.
    Succeeded,
    /// The command was refused permanently. The answer will be replayed.
    FailedReplayable,
    /// Nothing took effect; the next request may try again.
    NotApplied,
    /// Nobody knows whether the effect happened.
    InDoubt,
}

/// The service's own statement about the effect. It overrides every rule about the status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OutcomeHint {
    /// The effect happened, whatever the status says.
    Applied,
    /// Nothing took effect, whatever the status says.
    NotApplied,
    /// The service does not know either.
    Unknown,
}

/// An answer, reduced to what its meaning depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Whether it has a readable `Retry-After`.
    pub retry_after: bool,
    /// The service's own statement, if it made one.
    pub outcome_hint: Option<OutcomeHint>,
}

impl Answer {
    /// An answer with this status, no `Retry-After` and no statement.
    pub const fn new(status: Status) -> Self {
        Self { status, retry_after: false, outcome_hint: None }
    }
}

/// How an operation interprets answers.
///
/// The default assumes one thing about the service: it answers with a status in `not_applied` only if nothing took
/// effect. If an operation cannot rely on that, empty the list. Successes are not allowed in it: see
/// [`check`](Self::check).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Statuses that promise that nothing took effect. (503 counts only with `Retry-After`.) No successes.
    pub not_applied: Vec<Status>,
    /// Statuses with a special meaning for this operation. A success cannot mean [`NotApplied`](Meaning::NotApplied).
    pub overrides: Vec<(Status, Meaning)>,
    /// Whether an answer that took no effect lets the next request try again (`true`), or is stored and
    /// replayed like any other refusal (`false`).
    pub rerun: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let http = [401, 403, 408, 425, 429, 503].map(Status::Http);
        let grpc = [grpc::PERMISSION_DENIED, grpc::UNAUTHENTICATED].map(Status::Grpc);
        Self { not_applied: http.into_iter().chain(grpc).collect(), overrides: Vec::new(), rerun: true }
    }
}

impl Rules {
    /// Rejects rules that treat a success as "nothing took effect": every retry would run again, and each would
    /// succeed. A service that answers like this must say so in each response ([`OutcomeHint::NotApplied`]).
    pub fn check(&self) -> Result<(), RulesError> {
        let overridden = self.overrides.iter().filter(|(_, meaning)| *meaning == Meaning::NotApplied);
        let mut statuses = self.not_applied.iter().chain(overridden.map(|(status, _)| status));
        match statuses.find(|status| is_success(**status)) {
            Some(status) => Err(RulesError::SuccessNotApplied(*status)),
            None => Ok(()),
        }
    }
}

/// Whether a status means that the command was or is being carried out: HTTP 1xx, 2xx and 3xx, gRPC 0, and a returned
/// value.
pub fn is_success(status: Status) -> bool {
    match status {
        Status::Http(code) => code < 400,
        Status::Grpc(code) => code == grpc::OK,
        Status::Value => true,
    }
}

/// Why rules are invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RulesError {
    /// They treat this success status as "nothing took effect".
    SuccessNotApplied(Status),
}

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::SuccessNotApplied(status) = self;
        match status {
            Status::Http(code) => write!(f, "a {code} is a success")?,
            Status::Grpc(code) => write!(f, "gRPC status {code} is a success")?,
            Status::Value => f.write_str("a returned value is a success")?,
        }
        f.write_str(
            " and cannot mean that nothing took effect: every retry would run again; list only errors",
        )
    }
}

impl std::error::Error for RulesError {}

/// The gRPC status codes in the table.
mod grpc {
    pub(super) const OK: u32 = 0;
    pub(super) const INVALID_ARGUMENT: u32 = 3;
    pub(super) const NOT_FOUND: u32 = 5;
    pub(super) const ALREADY_EXISTS: u32 = 6;
    pub(super) const PERMISSION_DENIED: u32 = 7;
    pub(super) const FAILED_PRECONDITION: u32 = 9;
    pub(super) const UNIMPLEMENTED: u32 = 12;
    pub(super) const UNAUTHENTICATED: u32 = 16;
}

/// What `answer` means for a record of `class`, under an operation's `rules`.
///
/// ```
/// use semel_core::classify::{Answer, Meaning, Rules, OutcomeHint, classify};
/// use semel_core::outcome::Status;
/// use semel_core::policy::Class;
///
/// let rules = Rules::default();
/// let read = |answer: &Answer| classify(Class::External, answer, &rules);
/// assert_eq!(read(&Answer::new(Status::Http(201))), Meaning::Succeeded);
/// assert_eq!(read(&Answer::new(Status::Http(422))), Meaning::FailedReplayable);
/// assert_eq!(read(&Answer::new(Status::Http(429))), Meaning::NotApplied);
/// // A plain 500 leaves the outcome open,
/// assert_eq!(read(&Answer::new(Status::Http(500))), Meaning::InDoubt);
/// // unless the service itself states it:
/// let stated = Answer { outcome_hint: Some(OutcomeHint::NotApplied), ..Answer::new(Status::Http(500)) };
/// assert_eq!(read(&stated), Meaning::NotApplied);
/// ```
pub fn classify(class: Class, answer: &Answer, rules: &Rules) -> Meaning {
    let meaning = match answer.outcome_hint {
        Some(OutcomeHint::Applied) => Meaning::Succeeded,
        Some(OutcomeHint::NotApplied) => Meaning::NotApplied,
        Some(OutcomeHint::Unknown) => Meaning::InDoubt,
        None => by_status(class, answer, rules),
    };
    // A local effect commits with its record or not at all, so there is no doubt.
    if meaning == Meaning::InDoubt && class == Class::Local { Meaning::NotApplied } else { meaning }
}

fn by_status(class: Class, answer: &Answer, rules: &Rules) -> Meaning {
    if let Some((_, meaning)) = rules.overrides.iter().find(|(status, _)| *status == answer.status) {
        return *meaning;
    }
    // A 503 counts only with `Retry-After`.
    let promised = rules.not_applied.contains(&answer.status)
        && (answer.status != Status::Http(503) || answer.retry_after);
    match answer.status {
        // A provider that deduplicates answers 409 while the first attempt still runs there: this is not an outcome.
        Status::Http(409) if class == Class::Downstream || answer.retry_after => Meaning::InDoubt,
        _ if promised => Meaning::NotApplied,
        Status::Value | Status::Http(200..=399) | Status::Grpc(grpc::OK) => Meaning::Succeeded,
        Status::Http(400..=499)
        | Status::Grpc(
            grpc::INVALID_ARGUMENT
            | grpc::NOT_FOUND
            | grpc::ALREADY_EXISTS
            | grpc::FAILED_PRECONDITION
            | grpc::UNIMPLEMENTED,
        ) => Meaning::FailedReplayable,
        Status::Http(_) | Status::Grpc(_) => Meaning::InDoubt,
    }
}

/// How an attempt ended, as its owner reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The effect happened.
    Succeeded(Outcome),
    /// The command was refused permanently.
    FailedReplayable(Outcome),
    /// Nothing took effect, and the next request may try again. The answer, if there was one, is handed to duplicates
    /// that were waiting for it.
    NotApplied(Option<Outcome>),
    /// Nothing took effect, and the operation stores and replays such an answer ([`Rules::rerun`]). It is final only
    /// if no earlier attempt is in doubt.
    NotAppliedForGood(Outcome),
    /// Nobody knows whether the effect happened.
    InDoubt,
}

impl Ending {
    /// The ending that an answer means: [`classify`], with the outcome inside.
    pub fn of(class: Class, answer: &Answer, rules: &Rules, outcome: Outcome) -> Self {
        match classify(class, answer, rules) {
            Meaning::Succeeded => Self::Succeeded(outcome),
            Meaning::FailedReplayable => Self::FailedReplayable(outcome),
            Meaning::NotApplied if rules.rerun => Self::NotApplied(Some(outcome)),
            Meaning::NotApplied => Self::NotAppliedForGood(outcome),
            Meaning::InDoubt => Self::InDoubt,
        }
    }
}

/// Whether an answer denies permission. Such a refusal is stored only briefly, because the client may get permission
/// soon.
pub(crate) fn denies(status: Status) -> bool {
    matches!(status, Status::Http(401 | 403))
}

#[cfg(test)]
mod tests;
