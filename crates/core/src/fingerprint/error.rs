//! Why a request cannot be fingerprinted.
//!
//! Errors contain no bytes of the request, because they reach logs and clients: each message is a fixed text with at
//! most a position.

use std::fmt;

/// The kind of error, which decides the response to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The body does not match its content type or content encoding. The client's mistake: 400.
    Malformed,
    /// The decoded body is larger than allowed. The client's mistake: 413.
    TooLarge,
    /// The record has an algorithm version that this build does not know.
    UnknownVersion,
    /// A value of a JSON body was requested, but the body is not JSON: it has another content type or an unknown
    /// content encoding.
    NotJson,
}

/// A request could not be fingerprinted.
///
/// Has the kind, a fixed text and, if known, the position of the problem. The position is an offset in the decoded
/// body; for decoding errors, an offset in the received body.
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

    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The byte offset of the problem; for a body that is too large, the limit.
    pub fn position(&self) -> Option<usize> {
        self.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.subject, self.problem)?;
        match (self.kind, self.position) {
            // Decoding stops at the limit, so the real size is not known.
            (ErrorKind::TooLarge, Some(limit)) => write!(f, " (the limit is {limit} bytes)"),
            (_, Some(position)) => write!(f, " (byte {position})"),
            (_, None) => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
