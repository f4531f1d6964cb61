//! Authorization before a replay.
//!
//! There is no replay without the consent of the callback.

use crate::body::Body;
use http::Response;
use http::request::Parts;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

type Answer = Pin<Box<dyn Future<Output = Result<(), Response<Body>>> + Send>>;

/// Checks, before a stored outcome is replayed, whether the caller may still get it.
///
/// Needed only if there is no authentication outside of the layer: without both, a revoked token can still get a
/// replay.
///
/// ```
/// use semel_http::{Authorize, Body, RouteSettings};
///
/// let authorize = Authorize::by(|retry: http::request::Parts| async move {
///     if is_still_valid(retry.headers.get("authorization")).await {
///         return Ok(());
///     }
///     let mut refusal = http::Response::new(Body::from(bytes::Bytes::from("Log in again.")));
///     *refusal.status_mut() = http::StatusCode::UNAUTHORIZED;
///     Err(refusal)
/// });
/// let settings = RouteSettings { authorize: Some(authorize), ..RouteSettings::default() };
/// # async fn is_still_valid(_: Option<&http::HeaderValue>) -> bool { true }
/// ```
#[derive(Clone)]
pub struct Authorize(Arc<dyn Fn(Parts) -> Answer + Send + Sync>);

impl Authorize {
    /// By your own check of the request head; the [`OperationId`](semel::core::id::OperationId) is in its extensions.
    /// On a refusal, the client gets the returned response; the record is unchanged.
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
