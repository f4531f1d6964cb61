//! Why there is no response: the failure, and its cause for the log.

use semel_http::{BoxError, Failure};

/// Why a request has no response.
pub(super) enum NoResponse {
    /// The connection did not accept it: nothing was sent, and the request is returned.
    HandedBack(Box<http::Request<semel_http::Body>>),
    Failed(Failed),
}

/// A failure and its cause.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) failure: Failure,
    pub(super) cause: BoxError,
}

impl Failed {
    pub(super) fn new(failure: Failure, cause: impl Into<BoxError>) -> Self {
        Self { failure, cause: cause.into() }
    }

    /// The cause and its causes, in one line.
    pub(super) fn message(&self) -> String {
        let mut message = self.cause.to_string();
        let mut next = self.cause.source();
        while let Some(source) = next {
            message.push_str(": ");
            message.push_str(&source.to_string());
            next = source.source();
        }
        message
    }
}

impl From<Failed> for NoResponse {
    fn from(failed: Failed) -> Self {
        Self::Failed(failed)
    }
}
