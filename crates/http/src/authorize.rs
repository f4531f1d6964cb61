//! Asking once more before a stored outcome is handed out.
//!
//! Contents: the question and who answers it. Never here: an answer of our own, or a replay without one.

use crate::body::Body;
use http::Response;
use http::request::Parts;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

type Answer = Pin<Box<dyn Future<Output = Result<(), Response<Body>>> + Send>>;

/// Asks, before a stored outcome is replayed, whether the caller may still have it.
///
/// Only needed where nothing outside of the layer authenticates: otherwise a token that was revoked since the first
/// request still fetches its replay.
///
/// ```
/// use semel_http::{Authorize, Body, Terms};
///
/// let authorize = Authorize::by(|retry: http::request::Parts| async move {
///     if is_still_valid(retry.headers.get("authorization")).await {
///         return Ok(());
///     }
///     let mut refusal = http::Response::new(Body::from(bytes::Bytes::from("Log in again.")));
///     *refusal.status_mut() = http::StatusCode::UNAUTHORIZED;
///     Err(refusal)
/// });
/// let terms = Terms { authorize: Some(authorize), ..Terms::default() };
/// # async fn is_still_valid(_: Option<&http::HeaderValue>) -> bool { true }
/// ```
#[derive(Clone)]
pub struct Authorize(Arc<dyn Fn(Parts) -> Answer + Send + Sync>);

impl Authorize {
    /// By a question of one's own, about the head of the request that would get the replay; the
    /// [`OperationId`](semel::core::id::OperationId) is among its extensions. The response of a refusal goes to the
    /// client as it is; nothing about the record changes.
    pub fn by<A, F>(ask: A) -> Self
    where
        A: Fn(Parts) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Response<Body>>> + Send + 'static,
    {
        Self(Arc::new(move |retry| Box::pin(ask(retry))))
    }

    pub(crate) async fn ask(&self, retry: Parts) -> Result<(), Response<Body>> {
        (self.0)(retry).await
    }
}

impl fmt::Debug for Authorize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorize")
    }
}
