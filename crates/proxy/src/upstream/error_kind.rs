//! The kinds of upstream errors that metrics count. [`Failure`](semel_http::Failure) says what is known about the
//! effect, and decides about the request.

use super::failed::Failed;
use semel_http::Failure;
use semel_net::client::ConnectError;
use std::fmt;
use std::sync::Arc;

/// Why a request to the upstream has no response, or only a part of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamError {
    /// The name could not be resolved.
    Dns,
    /// No TCP connection: refused, or no route.
    Connect,
    /// No connection within `connect_timeout`.
    ConnectTimeout,
    /// The TLS handshake failed.
    Tls,
    /// Nothing was sent for another reason: no free connection, or one that closed before it accepted the request.
    NotSent,
    /// The connection closed after a byte was sent and before the response was complete.
    Reset,
    /// The response is not valid HTTP.
    Malformed,
    /// No complete response within `response_timeout`.
    Timeout,
}

impl UpstreamError {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Dns,
        Self::Connect,
        Self::ConnectTimeout,
        Self::Tls,
        Self::NotSent,
        Self::Reset,
        Self::Malformed,
        Self::Timeout,
    ];

    /// The kind as a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::ConnectTimeout => "connect_timeout",
            Self::Tls => "tls",
            Self::NotSent => "not_sent",
            Self::Reset => "reset",
            Self::Malformed => "malformed",
            Self::Timeout => "timeout",
        }
    }

    /// The kind of a request that has no response.
    pub(super) fn of(failed: &Failed) -> Self {
        match failed.failure {
            Failure::ConnectTimeout => Self::ConnectTimeout,
            Failure::TimedOut => Self::Timeout,
            Failure::Unreachable => match failed.cause.downcast_ref() {
                Some(ConnectError::Name(_)) => Self::Dns,
                Some(ConnectError::Connect(_)) => Self::Connect,
                Some(ConnectError::Tls(_)) => Self::Tls,
                None => Self::NotSent,
            },
            Failure::Broken => {
                let http1 = failed.cause.downcast_ref::<hyper::Error>().map(|error| !error.is_parse());
                let http2 = failed.cause.downcast_ref::<::h2::Error>().map(|error| !error.is_library());
                // Any other cause means that the response breaks a rule of HTTP.
                if http1.or(http2).unwrap_or(false) { Self::Reset } else { Self::Malformed }
            }
        }
    }

    /// The kind of a response that was cut off.
    pub(super) const fn of_body(failure: Failure) -> Self {
        match failure {
            Failure::TimedOut => Self::Timeout,
            Failure::Unreachable | Failure::ConnectTimeout | Failure::Broken => Self::Reset,
        }
    }
}

/// Counts errors.
#[derive(Clone)]
pub(super) struct Counting(pub(super) Arc<dyn Fn(UpstreamError) + Send + Sync>);

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counting")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn the_kind_follows_from_the_cause() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let kind =
            |failure, cause: semel_http::BoxError| UpstreamError::of(&Failed { failure, cause }).name();
        assert_eq!(kind(Failure::Unreachable, ConnectError::Name(refused()).into()), "dns");
        assert_eq!(kind(Failure::Unreachable, ConnectError::Connect(refused()).into()), "connect");
        assert_eq!(kind(Failure::Unreachable, ConnectError::Tls(refused()).into()), "tls");
        assert_eq!(kind(Failure::Unreachable, "every connection was closed at once".into()), "not_sent");
        assert_eq!(kind(Failure::ConnectTimeout, "no connection in time".into()), "connect_timeout");
        assert_eq!(kind(Failure::Broken, "it switched protocols".into()), "malformed");
        assert_eq!(kind(Failure::TimedOut, "no response in time".into()), "timeout");
        assert_eq!(UpstreamError::of_body(Failure::Broken).name(), "reset");
    }
}
