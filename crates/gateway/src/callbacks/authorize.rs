//! Asks the service whether a caller may still get a replay. Without an answer that allows it, nothing is replayed.

use super::client_requests::{ClientRequests, ServiceClients};
use super::probe::uncached;
use super::read::Read;
use super::template::Template;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, response};
use semel::core::id::OperationId;
use semel_http::{Body, Code, Form, Problem};
use std::sync::Arc;
use std::time::Duration;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::ask::authorize";

/// How the service is asked whether a caller may still get a replay.
#[derive(Debug, Clone)]
pub struct Authorize {
    /// The path to request.
    pub path: Template,
    /// Client headers that are passed on, besides those that identify it.
    pub headers: Vec<HeaderName>,
    /// The timeout. 5 s by default.
    pub timeout: Duration,
}

/// The request in question, in the headers that other proxies use too: the client's own request is not sent.
const METHOD: HeaderName = HeaderName::from_static("x-original-method");
const TARGET: HeaderName = HeaderName::from_static("x-original-uri");

/// The longest refusal that is passed on with its body.
const BYTES_MAX: usize = 64 * 1024;
/// When a client should retry whose replay could not be authorised.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl Authorize {
    /// Asks at `path`, with defaults for the rest.
    pub fn new(path: Template) -> Self {
        Self { path, headers: Vec::new(), timeout: Duration::from_secs(5) }
    }

    /// The callback for the layer.
    pub(super) fn build(&self, clients: &ServiceClients) -> semel_http::Authorize {
        let client_requests = Arc::new(ClientRequests::new(clients, &self.headers, self.timeout, BYTES_MAX));
        let path = Arc::new(self.path.clone());
        let prefix: Arc<str> = clients.prefix.as_str().into();
        semel_http::Authorize::by(move |retry| {
            let (client_requests, path, prefix) =
                (Arc::clone(&client_requests), Arc::clone(&path), Arc::clone(&prefix));
            async move { ask(&client_requests, &path, &prefix, &retry).await }
        })
    }
}

async fn ask(
    client_requests: &ClientRequests,
    path: &Template,
    prefix: &str,
    retry: &Parts,
) -> Result<(), Response<Body>> {
    let id = retry.extensions.get::<OperationId>().copied();
    let unasked = || {
        let detail = "Whether you may still have the outcome could not be asked of the service. Nothing was run; retry \
                      later, with the same key.";
        let problem = Problem::new(Code::Unreachable, detail).with_status(503).retryable_after(RETRY_AFTER);
        let problem = id.into_iter().fold(problem, Problem::about);
        problem.into_response(Form::of(&retry.headers), prefix)
    };
    let Some(path) = id.and_then(|id| path.fill(id, "")) else { return Err(unasked()) };
    let Some((head, body)) = client_requests.get(path, retry, question_headers(retry)).await else {
        return Err(unasked());
    };
    match head.status {
        status if status.is_success() => Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(refusal(head, body)),
        status => {
            tracing::warn!(target: LOG, %status, "the service neither allowed nor refused a replay; nothing was replayed");
            Err(unasked())
        }
    }
}

/// The client's request. The service must decide, not a cache.
fn question_headers(retry: &Parts) -> HeaderMap {
    let mut question_headers = HeaderMap::new();
    uncached(&mut question_headers);
    let target = retry.uri.path_and_query().map_or("/", |target| target.as_str());
    for (name, text) in [(METHOD, retry.method.as_str()), (TARGET, target)] {
        if let Ok(value) = HeaderValue::from_str(text) {
            question_headers.insert(name, value);
        }
    }
    question_headers
}

/// The service's own refusal.
fn refusal(mut head: response::Parts, body: Read) -> Response<Body> {
    let body = body.complete().unwrap_or_else(|| {
        for described in [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_ENCODING] {
            head.headers.remove(described);
        }
        Bytes::new()
    });
    Response::from_parts(head, Body::from(body))
}
