//! How much of a response is stored, and how the rest is rebuilt.
//!
//! A rebuilt response is always marked.

use crate::body::Body;
use bytes::Bytes;
use http::header::{ETAG, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use semel::core::id::OperationId;
use semel::core::outcome::{self, Fields, Outcome, Status};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// How much of a response is stored.
#[derive(Clone, Default)]
pub enum Retain {
    /// All of it, except headers that belong to one delivery: a replay is the same to the byte.
    #[default]
    Whole,
    /// The status, `Location`, `ETag` and the [name of the resource](crate::Handle::name_resource). A replay is
    /// rebuilt by [`Rebuild`] and marked `Idempotency-Replayed: rebuilt`; without one, it is answered as not
    /// retained.
    Minimal(Option<Arc<dyn Rebuild>>),
}

impl Retain {
    /// The minimal form, and a callback that rebuilds a replay from it.
    pub fn rebuilt_by(rebuild: impl Rebuild) -> Self {
        Self::Minimal(Some(Arc::new(rebuild)))
    }

    pub(crate) fn rebuild(&self) -> Option<&Arc<dyn Rebuild>> {
        match self {
            Self::Whole => None,
            Self::Minimal(rebuild) => rebuild.as_ref(),
        }
    }
}

impl fmt::Debug for Retain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "Whole",
            Self::Minimal(None) => "Minimal",
            Self::Minimal(Some(_)) => "Minimal(rebuilt)",
        })
    }
}

/// The minimal form of a response. Debug output shows which parts there are, not their contents.
#[derive(Clone)]
#[non_exhaustive]
pub struct StoredSummary {
    /// The operation.
    pub operation_id: OperationId,
    /// The status of the response; 200 for gRPC.
    pub status: StatusCode,
    /// The `Location` header.
    pub location: Option<HeaderValue>,
    /// The `ETag` header.
    pub etag: Option<HeaderValue>,
    /// The name that the handler gave the resource.
    pub resource: Option<String>,
}

impl fmt::Debug for StoredSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredSummary")
            .field("operation_id", &self.operation_id)
            .field("status", &self.status)
            .field("has_location", &self.location.is_some())
            .field("has_etag", &self.etag.is_some())
            .field("has_resource", &self.resource.is_some())
            .finish()
    }
}

/// Rebuilds a response from its minimal form, for a retry.
pub trait Rebuild: Send + Sync + 'static {
    /// The response; `None` if it cannot be rebuilt. Its status and, unless it has one, its `Location` are replaced
    /// by the stored ones. `retry` is the head of the retry, which has the same caller as the original request.
    fn rebuild(
        &self,
        summary: StoredSummary,
        retry: Parts,
    ) -> Pin<Box<dyn Future<Output = Option<Response<Body>>> + Send + '_>>;
}

/// Any function to a future.
impl<R, F> Rebuild for R
where
    R: Fn(StoredSummary, Parts) -> F + Send + Sync + 'static,
    F: Future<Output = Option<Response<Body>>> + Send + 'static,
{
    fn rebuild(
        &self,
        summary: StoredSummary,
        retry: Parts,
    ) -> Pin<Box<dyn Future<Output = Option<Response<Body>>> + Send + '_>> {
        Box::pin(self(summary, retry))
    }
}

/// The field for a resource's name. No header can have this name.
const RESOURCE: &str = ":resource";

/// Marks a response that was found by a probe, instead of the original one.
const FOUND: &str = ":found";

/// The outcome of a complete response that a probe found, which is not the original one.
pub(crate) fn found<'h>(
    status: Status,
    headers: impl IntoIterator<Item = (&'h str, &'h [u8])>,
    body: Bytes,
) -> Outcome {
    let headers = headers.into_iter().chain([(FOUND, b"true".as_slice())]).collect();
    Outcome { headers, body: outcome::Body::Kept(body), ..Outcome::not_retained(status) }
}

/// Whether an outcome was found by a probe.
pub(crate) fn is_found(outcome: &Outcome) -> bool {
    outcome.headers.iter().any(|(name, _)| name == FOUND.as_bytes())
}

/// The minimal form of a response.
pub(crate) fn minimal(status: Status, headers: &HeaderMap, resource: Option<String>) -> Outcome {
    let stored = [LOCATION, ETAG].into_iter().filter_map(|name| {
        let value = headers.get(&name)?;
        Some((name.as_str().to_owned(), value.as_bytes().to_vec()))
    });
    let resource = resource.map(|name| (RESOURCE.to_owned(), name.into_bytes()));
    let headers: Fields = stored.chain(resource).collect();
    Outcome { headers, ..Outcome::not_retained(status) }
}

/// Whether a stored field is a header, and not one of Semel's own marks.
pub fn is_header(name: &[u8]) -> bool {
    !name.starts_with(b":")
}

/// Rebuilds a response.
pub(crate) async fn response(
    rebuild: &dyn Rebuild,
    operation_id: OperationId,
    outcome: &Outcome,
    retry: Parts,
) -> Option<Response<Body>> {
    let field = |wanted: &str| {
        let mut fields = outcome.headers.iter();
        fields.find(|(name, _)| *name == wanted.as_bytes()).map(|(_, value)| value)
    };
    let header = |name| field(name).and_then(|value| HeaderValue::from_bytes(value).ok());
    let status = match outcome.status {
        Status::Http(status) => StatusCode::from_u16(status).ok()?,
        Status::Grpc(_) => StatusCode::OK,
        Status::Value => return None,
    };
    let (location, etag) = (header(LOCATION.as_str()), header(ETAG.as_str()));
    let resource = field(RESOURCE).and_then(|name| String::from_utf8(name.to_vec()).ok());
    let summary = StoredSummary { operation_id, status, location: location.clone(), etag, resource };
    let mut response = rebuild.rebuild(summary, retry).await?;
    *response.status_mut() = status;
    if let Some(location) = location {
        response.headers_mut().entry(LOCATION).or_insert(location);
    }
    Some(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_testkit::assert_hidden;

    #[test]
    fn debug_output_shows_nothing_of_a_response() {
        const SECRET: &str = "/charges/7?signature=5e55";
        let summary = StoredSummary {
            operation_id: OperationId::from_bytes([7; 16]),
            status: StatusCode::CREATED,
            location: Some(HeaderValue::from_static(SECRET)),
            etag: Some(HeaderValue::from_static(SECRET)),
            resource: Some(SECRET.to_owned()),
        };
        assert_hidden("StoredSummary", &summary, SECRET.as_bytes());
        assert_hidden("Body", &Body::from(Bytes::from_static(SECRET.as_bytes())), SECRET.as_bytes());
    }
}
