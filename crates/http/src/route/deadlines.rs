//! What a route does with the time that a client has left.

use crate::names;
use http::HeaderName;
use std::time::Duration;

/// How a route treats a client's deadline: the time after which the client no longer waits.
///
/// A client states it in milliseconds, in the header [`X-Request-Timeout-Ms`](names::REQUEST_TIMEOUT_MS) or, for gRPC,
/// in `grpc-timeout`. If it is over before the effect has begun, nothing is run, and the client gets
/// [`DEADLINE_EXCEEDED`](crate::Code::DeadlineExceeded). What has begun is never cut off: the client learns that its
/// request is in progress, and a retry gets the outcome. A value that is not valid is ignored and passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlines {
    /// The header with the time that is left, in milliseconds. `None`: deadlines are ignored, those of gRPC too.
    pub header: Option<HeaderName>,
    /// If less than this is left, nothing is run. Zero.
    pub min: Duration,
    /// Whether the handler gets a header with the time that is then left. If not, it gets none, which is right for a
    /// service that would stop halfway: its effect would be in doubt. True.
    pub are_forwarded: bool,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { header: Some(names::REQUEST_TIMEOUT_MS), min: Duration::ZERO, are_forwarded: true }
    }
}
