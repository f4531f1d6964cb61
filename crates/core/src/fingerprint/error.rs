//! Why a request has no fingerprint.
//!
//! Contents: the one error of this module. Never here: bytes of the request. These messages reach logs and clients,
//! so each is a fixed sentence with at most a position beside it.

use std::fmt;

/// What kind of trouble it was, which decides what the client is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The body is not what its content type or content encoding says it is. The client's mistake: 400.
    Malformed,
    /// The body, once decoded, is larger than allowed. The client's mistake: 413.
    TooLarge,
    /// The record was made under an algorithm version that this build does not know.
    UnknownVersion,
    /// A place in a JSON body was asked for, and the body is not JSON: by its content type, or because a coding
    /// that nobody here knows is on it.
    NotJson,
}

/// A request could not be fingerprinted.
///
/// Carries the kind, a fixed sentence and, if there is one, the byte at which the trouble was noticed. The position
/// counts in the decoded body, except for trouble with the decoding itself, where it counts in the body as it was
/// received.
///
/// ```
/// use semel_core::fingerprint::{ErrorKind, json};
///
/// let error = json::canonical(br#"{"a":1,"a":2}"#).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Malformed);
/// assert_eq!(error.position(), Some(7));
/// assert_eq!(error.to_string(), "JSON body: two members of one object have the same name (byte 7)");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    subject: &'static str,
    problem: &'static str,
    position: Option<usize>,
}

impl Error {
    pub(super) fn malformed(subject: &'static str, problem: &'static str, position: usize) -> Self {
        Self { kind: ErrorKind::Malformed, subject, problem, position: Some(position) }
    }

    pub(super) fn new(kind: ErrorKind, subject: &'static str, problem: &'static str) -> Self {
        Self { kind, subject, problem, position: None }
    }

    pub(super) fn at(self, position: usize) -> Self {
        Self { position: Some(position), ..self }
    }

    /// The kind of trouble.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The byte at which it was noticed, counted from zero; for a body that is too large, the limit.
    pub fn position(&self) -> Option<usize> {
        self.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.problem)?;
        match (self.kind, self.position) {
            // Noticed where the limit stands, whatever the rest would have come to.
            (ErrorKind::TooLarge, Some(limit)) => write!(f, " (the limit is {limit} bytes)"),
            (_, Some(position)) => write!(f, " (byte {position})"),
            (_, None) => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
