//! What the rules need from the program around them: the time, and what its HTTP layer knows about a request.

use super::caller_error::CallerError;
use super::peer::Peer;
use http::request::Parts;
use http::{Extensions, HeaderName};
use semel_core::scope::Caller;
use semel_core::time::Time;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// The time, for tokens and for the age of keys.
pub trait Clock: Send + Sync + 'static {
    /// Wall time.
    fn now(&self) -> Time;

    /// Time since some fixed moment, never set back, including time while the machine was suspended.
    fn uptime(&self) -> Duration;

    /// Completes after `span`.
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}

/// Finds out from a request's extensions where it came from; `None` if that is not known.
pub type PeerOf = Box<dyn Fn(&Extensions) -> Option<Peer> + Send + Sync>;

/// What the HTTP layer that uses the rules knows, and they do not.
pub struct HttpLayer {
    /// Where a request came from.
    pub peer: PeerOf,
    /// The caller by the credentials in `Authorization`, anonymous without any. A refusal names the given setting, which
    /// an operator can change.
    pub by_authorization: fn(&Parts, setting: &str) -> Result<Caller, CallerError>,
    /// The headers that have a meaning for the layer, so they identify nobody.
    pub reserved_headers: &'static [HeaderName],
}
