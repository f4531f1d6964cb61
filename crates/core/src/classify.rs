//! What an answer says about the effect: it happened, it was refused, it did not happen, or nobody can tell.
//!
//! Contents: the one table from class, status and the answering system's own word to an ending. Never here: reading
//! headers or bodies; anyone who speaks the protocol hands over an [`Answer`].

use crate::outcome::{Outcome, Status};
use crate::policy::Class;
use std::fmt;

/// What an answer means for the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Meaning {
    /// The effect happened; the answer is replayed from now on.
    Succeeded,
    /// The command was refused for good; the answer is replayed from now on.
    FailedReplayable,
    /// Nothing took effect; the next request may try again.
    NotApplied,
    /// Nobody can tell whether the effect happened.
    InDoubt,
}

/// What the answering system itself says about the effect, which outranks every rule about its status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Steer {
    /// The effect happened, whatever the status says.
    Applied,
    /// Nothing took effect, whatever the status says.
    NotApplied,
    /// It does not know either.
    Unknown,
}

/// An answer, reduced to what its meaning depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Answer {
    /// Its status.
    pub status: Status,
    /// Whether it invites a retry by naming a time for it, in a form that a client can read.
    pub retry_after: bool,
    /// The answering system's own word, where it gave one.
    pub steer: Option<Steer>,
}

impl Answer {
    /// An answer with this status, no invitation to retry and no word of its own.
    pub const fn new(status: Status) -> Self {
        Self { status, retry_after: false, steer: None }
    }
}

/// How an operation reads answers.
///
/// The default rests on one assumption about the answering system: that it gives the statuses listed in
/// `not_applied` only when nothing took effect. An operation that cannot assume it empties the list. Rules that read a
/// success so are no rules: see [`check`](Self::check).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Statuses that promise that nothing took effect. (503 counts only when it invites a retry.) No successes.
    pub not_applied: Vec<Status>,
    /// Statuses with a meaning of their own for this operation. No success means [`NotApplied`](Meaning::NotApplied).
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
    /// Refuses rules that take a success for "nothing took effect": every retry would run again, and each would
    /// succeed. A system that answers so all the same says it by its own word ([`Steer::NotApplied`]), response by
    /// response.
    pub fn check(&self) -> Result<(), RulesError> {
        let overridden = self.overrides.iter().filter(|(_, meaning)| *meaning == Meaning::NotApplied);
        let mut statuses = self.not_applied.iter().chain(overridden.map(|(status, _)| status));
        match statuses.find(|status| is_success(**status)) {
            Some(status) => Err(RulesError::SuccessNotApplied(*status)),
            None => Ok(()),
        }
    }
}

/// Whether a status says that the command was carried out, or is being: HTTP 1xx, 2xx and 3xx, gRPC 0, and a returned
/// value.
pub fn is_success(status: Status) -> bool {
    match status {
        Status::Http(code) => code < 400,
        Status::Grpc(code) => code == grpc::OK,
        Status::Value => true,
    }
}

/// Why rules cannot be put to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RulesError {
    /// They take this status, a success, for "nothing took effect".
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
            " and cannot mean that nothing took effect: every retry would run again. List errors only",
        )
    }
}

impl std::error::Error for RulesError {}

/// The gRPC status codes that the table names.
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
/// use semel_core::classify::{Answer, Meaning, Rules, Steer, classify};
/// use semel_core::outcome::Status;
/// use semel_core::policy::Class;
///
/// let rules = Rules::default();
/// let read = |answer: &Answer| classify(Class::External, answer, &rules);
/// assert_eq!(read(&Answer::new(Status::Http(201))), Meaning::Succeeded);
/// assert_eq!(read(&Answer::new(Status::Http(422))), Meaning::FailedReplayable);
/// assert_eq!(read(&Answer::new(Status::Http(429))), Meaning::NotApplied);
/// // A bare 500 says nothing about what happened before it:
/// assert_eq!(read(&Answer::new(Status::Http(500))), Meaning::InDoubt);
/// // unless the system says so itself:
/// let word = Answer { steer: Some(Steer::NotApplied), ..Answer::new(Status::Http(500)) };
/// assert_eq!(read(&word), Meaning::NotApplied);
/// ```
pub fn classify(class: Class, answer: &Answer, rules: &Rules) -> Meaning {
    let meaning = match answer.steer {
        Some(Steer::Applied) => Meaning::Succeeded,
        Some(Steer::NotApplied) => Meaning::NotApplied,
        Some(Steer::Unknown) => Meaning::InDoubt,
        None => by_status(class, answer, rules),
    };
    // A local effect commits with its record or not at all: there is nothing to be in doubt about.
    if meaning == Meaning::InDoubt && class == Class::Local { Meaning::NotApplied } else { meaning }
}

fn by_status(class: Class, answer: &Answer, rules: &Rules) -> Meaning {
    if let Some((_, meaning)) = rules.overrides.iter().find(|(status, _)| *status == answer.status) {
        return *meaning;
    }
    // A plain 503 promises nothing; one that names a time for the retry does.
    let promised = rules.not_applied.contains(&answer.status)
        && (answer.status != Status::Http(503) || answer.retry_after);
    match answer.status {
        // A provider that deduplicates answers 409 while its own first attempt still runs: not an outcome.
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

/// How an attempt ended, as its owner tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// The effect happened.
    Succeeded(Outcome),
    /// The command was refused for good.
    FailedReplayable(Outcome),
    /// Nothing took effect, and the next request may try again. The answer, if there was one, is handed to duplicates
    /// that were waiting for it.
    NotApplied(Option<Outcome>),
    /// Nothing took effect, and the operation wants such an answer kept and replayed ([`Rules::rerun`]). It is
    /// final only where no earlier attempt is in doubt.
    NotAppliedForGood(Outcome),
    /// Nobody can tell whether the effect happened.
    InDoubt,
}

impl Ending {
    /// The ending that an answer stands for: [`classify`], with the outcome put where it belongs.
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

/// Whether an answer refuses because permission is missing: remembered for a short time only, since the same client
/// may be allowed a moment later.
pub(crate) fn denies(status: Status) -> bool {
    matches!(status, Status::Http(401 | 403))
}

#[cfg(test)]
mod tests;
