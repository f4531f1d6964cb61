//! Rebuilds a response that was stored only in part, from the service itself.

use super::client_requests::{ClientRequests, ServiceClients};
use super::location::below;
use super::template::Template;
use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use semel_http::{Body, Form, Remnant, Retain};
use semel_net::target::Target;
use std::sync::Arc;
use std::time::Duration;

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
        Retain::rebuilt_by(move |remnant: Remnant, retry: Parts| {
            let (client_requests, source, target) =
                (Arc::clone(&client_requests), Arc::clone(&source), Arc::clone(&target));
            async move { rebuild_response(&client_requests, &source, &target, &remnant, &retry).await }
        })
    }
}

async fn rebuild_response(
    client_requests: &ClientRequests,
    source: &Source,
    target: &Target,
    remnant: &Remnant,
    retry: &Parts,
) -> Option<Response<Body>> {
    // The current resource is neither an earlier refusal nor a gRPC message.
    if Form::of(&retry.headers) == Form::Grpc || !has_success(remnant.status) {
        return None;
    }
    if is_empty(remnant) {
        return Some(Response::new(Body::from(Bytes::new())));
    }
    let path = path(source, target, remnant, retry)?;
    let (head, body) = client_requests.get(path, retry, HeaderMap::new()).await?;
    if head.status != StatusCode::OK {
        tracing::warn!(operation_id = %remnant.operation_id, status = %head.status, "a response could not be rebuilt");
        return None;
    }
    Some(Response::from_parts(head, Body::from(body.complete()?)))
}

fn has_success(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection()
}

/// Whether a response is complete without a body: it has none, or is a redirect.
fn is_empty(remnant: &Remnant) -> bool {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::RESET_CONTENT, StatusCode::NOT_MODIFIED];
    bodiless.contains(&remnant.status) || remnant.status.is_redirection() && remnant.location.is_some()
}

fn path(source: &Source, target: &Target, remnant: &Remnant, retry: &Parts) -> Option<PathAndQuery> {
    match source {
        Source::Path(template) => template.fill(remnant.operation_id, ""),
        Source::Location => {
            let host = retry.headers.get(HOST).and_then(|host| host.to_str().ok());
            let found = remnant.location.as_ref().map(HeaderValue::to_str);
            let path = found.and_then(Result::ok).and_then(|location| below(location, target, host));
            if path.is_none() {
                tracing::warn!(
                    operation_id = %remnant.operation_id,
                    "a response cannot be rebuilt: its Location is not below the service's URL"
                );
            }
            path
        }
    }
}
