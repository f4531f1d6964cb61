//! Rebuilds a response that was stored only in part, from the service itself.

use super::client_requests::{ClientRequests, ServiceClients};
use super::location::below;
use super::template::Template;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use semel_http::{Body, Form, Retain, StoredSummary};
use semel_net::target::Target;
use std::sync::Arc;
use std::time::Duration;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::ask::rebuild";

/// The source for rebuilding a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The resource in the response's `Location`, if it belongs to the service.
    Location,
    /// A path of the service.
    Path(Template),
}

/// How to rebuild a response.
#[derive(Debug, Clone)]
pub struct Rebuild {
    /// From what.
    pub source: Source,
    /// Client headers that are passed on, besides those that identify it.
    pub headers: Vec<HeaderName>,
    /// The timeout. 10 s by default.
    pub timeout: Duration,
}

impl Rebuild {
    /// Rebuilds from `source`, with defaults for the rest.
    pub fn new(source: Source) -> Self {
        Self { source, headers: Vec::new(), timeout: Duration::from_secs(10) }
    }

    /// Stores responses in part, and rebuilds them like this.
    pub(super) fn build(&self, clients: &ServiceClients, bytes_max: usize) -> Retain {
        let also: Vec<_> =
            [ACCEPT, ACCEPT_ENCODING].into_iter().chain(self.headers.iter().cloned()).collect();
        let client_requests = Arc::new(ClientRequests::new(clients, &also, self.timeout, bytes_max));
        let (source, target) = (Arc::new(self.source.clone()), clients.upstream.target().clone());
        let target = Arc::new(target);
        Retain::rebuilt_by(move |summary: StoredSummary, retry: Parts| {
            let (client_requests, source, target) =
                (Arc::clone(&client_requests), Arc::clone(&source), Arc::clone(&target));
            async move { rebuild_response(&client_requests, &source, &target, &summary, &retry).await }
        })
    }
}

async fn rebuild_response(
    client_requests: &ClientRequests,
    source: &Source,
    target: &Target,
    summary: &StoredSummary,
    retry: &Parts,
) -> Option<Response<Body>> {
    // The current resource is neither an earlier refusal nor a gRPC message.
    if Form::of(&retry.headers) == Form::Grpc || !has_success(summary.status) {
        return None;
    }
    if is_empty(summary) {
        return Some(Response::new(Body::from(Bytes::new())));
    }
    let path = path(source, target, summary, retry)?;
    let (head, body) = client_requests.get(path, retry, HeaderMap::new()).await?;
    if head.status != StatusCode::OK {
        tracing::warn!(target: LOG, operation_id = %summary.operation_id, status = %head.status, "a response could not be rebuilt");
        return None;
    }
    Some(Response::from_parts(head, Body::from(body.complete()?)))
}

fn has_success(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// Whether a response is complete without a body: it has none, or is a redirect.
fn is_empty(summary: &StoredSummary) -> bool {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    bodiless.contains(&summary.status) || summary.status.is_redirection() && summary.location.is_some()
}

fn path(source: &Source, target: &Target, summary: &StoredSummary, retry: &Parts) -> Option<PathAndQuery> {
    match source {
        Source::Path(template) => template.fill(summary.operation_id, ""),
        Source::Location => {
            let host = retry.headers.get(HOST).and_then(|host| host.to_str().ok());
            let found = summary.location.as_ref().map(HeaderValue::to_str);
            let path = found.and_then(Result::ok).and_then(|location| below(location, target, host));
            if path.is_none() {
                tracing::warn!(
                    target: LOG, operation_id = %summary.operation_id,
                    "a response cannot be rebuilt: its Location is not below the service's URL"
                );
            }
            path
        }
    }
}
