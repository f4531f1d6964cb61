//! Requests to the service on behalf of a waiting client: one GET with the client's credentials and little else. They
//! never contain the client's key or body.

use super::read::{Read, read};
use bytes::Bytes;
use http::header::{ACCEPT_LANGUAGE, AUTHORIZATION, COOKIE, HOST, USER_AGENT};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Request, Uri, response};
use semel_http::Body;
use semel_proxy::forward::{self, Outbound};
use semel_proxy::listen::Peer;
use semel_proxy::upstream::Upstream;
use std::time::Duration;
use tower_service::Service as _;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::ask::client_requests";

/// How the service is reached.
#[derive(Debug, Clone)]
pub struct ServiceClients {
    /// For the gateway's own callbacks.
    pub upstream: Upstream,
    /// For requests on behalf of a client: the same path as its own requests take.
    pub outbound: Outbound,
    /// The headers that identify clients, besides `Authorization` and `Cookie`.
    pub credentials: Vec<HeaderName>,
    /// The prefix of the published paths, where problems are explained.
    pub prefix: String,
}

/// Client headers that are passed on with every such request.
const PASSED: [HeaderName; 5] = [HOST, AUTHORIZATION, COOKIE, USER_AGENT, ACCEPT_LANGUAGE];

/// Sends requests on behalf of a client.
pub(super) struct ClientRequests {
    outbound: Outbound,
    passed: Vec<HeaderName>,
    timeout: Duration,
    bytes_max: usize,
}

impl ClientRequests {
    pub(super) fn new(
        clients: &ServiceClients,
        also: &[HeaderName],
        timeout: Duration,
        bytes_max: usize,
    ) -> Self {
        let passed = PASSED.iter().chain(&clients.credentials).chain(also).cloned().collect();
        Self { outbound: clients.outbound.clone(), passed, timeout, bytes_max }
    }

    /// Requests `path` on behalf of the client that sent `retry`. `None` if there is no response in time.
    pub(super) async fn get(
        &self,
        path: PathAndQuery,
        retry: &Parts,
        forwarded: HeaderMap,
    ) -> Option<(response::Parts, Read)> {
        let mut request = Request::new(Body::from(Bytes::new()));
        *request.uri_mut() = Uri::from(path);
        *request.version_mut() = retry.version;
        if let Some(peer) = retry.extensions.get::<Peer>() {
            request.extensions_mut().insert(*peer);
        }
        let headers = request.headers_mut();
        for (name, value) in &retry.headers {
            // What a trusted proxy said about the client is passed on; other origin headers are dropped on the way.
            if self.passed.contains(name) || forward::is_origin_header(name) {
                headers.append(name, value.clone());
            }
        }
        headers.extend(forwarded);
        let mut outbound = self.outbound.clone();
        let exchange = async {
            // The upstream logs why there is no response.
            let (head, body) = outbound.call(request).await.ok()?.into_parts();
            let body = read(body, self.bytes_max).await;
            Some((head, body))
        };
        tokio::time::timeout(self.timeout, exchange).await.unwrap_or_else(|_| {
            tracing::warn!(target: LOG, "the service did not answer in time, when asked on behalf of a client");
            None
        })
    }
}
