//! Failures of an inner service.
//!
//! What is known about the effect without a response. "Nothing was sent" is never a guess.

use super::code::Code;
use std::fmt;

/// Why an inner service has no response. A service that calls another one returns this as its error, or as a source
/// of it; every other error counts as [`Broken`](Self::Broken). It must be true for *everything* that the service did
/// for the request: a service that reached a first system but not a second one must not pass on the second error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No byte of the request was sent: connection refused, unknown host, or returned unsent. The next request with
    /// the key is the next attempt.
    Unreachable,
    /// No byte was sent: no connection in time.
    ConnectTimeout,
    /// The connection closed, or the response was not valid HTTP, after a byte may have been sent. In doubt.
    Broken,
    /// It did not answer in time. In doubt.
    TimedOut,
}

impl Failure {
    /// The failure in `error` or one of its sources.
    pub(crate) fn found_in(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(failure) = error.downcast_ref() {
                return *failure;
            }
            next = error.source();
        }
        Self::Broken
    }

    /// The code for the client.
    pub const fn code(self) -> Code {
        match self {
            Self::Unreachable | Self::ConnectTimeout => Code::Unreachable,
            Self::Broken => Code::UpstreamFailed,
            Self::TimedOut => Code::UpstreamTimeout,
        }
    }

    /// The same for a record's history.
    pub const fn why(self) -> &'static str {
        match self {
            Self::Unreachable => "no connection, nothing was sent",
            Self::ConnectTimeout => "no connection in time, nothing was sent",
            Self::Broken => "the connection closed, or the response was not valid HTTP",
            Self::TimedOut => "no response in time",
        }
    }

    /// The failure of a response's body. The response had begun, so something was sent.
    pub(crate) fn of_body(error: &(dyn std::error::Error + 'static)) -> Self {
        match Self::found_in(error) {
            Self::TimedOut => Self::TimedOut,
            Self::Unreachable | Self::ConnectTimeout | Self::Broken => Self::Broken,
        }
    }

    /// Whether it proves that nothing took effect.
    pub const fn nothing_was_sent(self) -> bool {
        matches!(self, Self::Unreachable | Self::ConnectTimeout)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreachable => "nothing was sent: the service could not be reached",
            Self::ConnectTimeout => "nothing was sent: there was no connection in time",
            Self::Broken => "the service closed the connection, or its response was not valid HTTP",
            Self::TimedOut => "the service did not answer in time",
        })
    }
}

impl std::error::Error for Failure {}
