//! How an inner service fails to answer.
//!
//! Contents: what can be known of the effect when there is no response. Never here: a guess that nothing was sent.

use std::fmt;

/// Why an inner service has no response, as far as it knows. A service that reaches out to another one returns this
/// as its error, or as a source of it; every other error counts as [`Broken`](Self::Broken). It has to be true of
/// *everything* that the service did for the request: one that reached a first system and not a second must not pass
/// the second's error on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// No byte of the request was sent: refused, no such host, handed back unserialised. The next request with the key
    /// is the next attempt.
    Unreachable,
    /// No byte was sent, for want of a connection in time.
    ConnectTimeout,
    /// It broke off, or answered nonsense, after a byte may have been sent. In doubt.
    Broken,
    /// It did not answer in time. In doubt.
    TimedOut,
}

impl Failure {
    /// What `error` or any of its sources says about it.
    pub(crate) fn told_by(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(failure) = error.downcast_ref() {
                return *failure;
            }
            next = error.source();
        }
        Self::Broken
    }

    /// The same for a record's history.
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::Unreachable => "no connection, nothing was sent",
            Self::ConnectTimeout => "no connection in time, nothing was sent",
            Self::Broken => "the connection broke off, or nonsense came back",
            Self::TimedOut => "no response in time",
        }
    }

    /// What the error of a response's body says. The response had begun: whatever it says, something was sent.
    pub(crate) fn of_body(error: &(dyn std::error::Error + 'static)) -> Self {
        match Self::told_by(error) {
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
            Self::Broken => "the service broke off or answered nonsense",
            Self::TimedOut => "the service did not answer in time",
        })
    }
}

impl std::error::Error for Failure {}
