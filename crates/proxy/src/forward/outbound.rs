//! The last step before the upstream: the request as the upstream gets it, and the response as it comes back.

use super::origin::{self, Client, Trust};
use super::{hops, tunnel};
use crate::upstream::{self, Upstream};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{Extensions, HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};
use semel::Attempt;
use semel_http::Failure;
use semel_net::target::{Target, Transport};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_service::Service;

/// Which `Host` the upstream sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Host {
    /// The client's: links that the upstream builds from it lead back to the gateway.
    #[default]
    Keep,
    /// The upstream's own, for a service that accepts no other name.
    Target,
}

type Clients = Arc<dyn Fn(&Extensions) -> Option<Client> + Send + Sync>;

/// How requests are passed on.
#[derive(Clone)]
pub struct Options {
    host: Host,
    trust: Trust,
    client: Option<Clients>,
}

impl Options {
    /// Which `Host` the upstream sees; the client's by default.
    #[must_use]
    pub fn host(self, host: Host) -> Self {
        Self { host, ..self }
    }

    /// Whose `Forwarded` and `X-Forwarded-*` are passed on. By default nobody's: they are replaced.
    #[must_use]
    pub fn trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Finds the other end of a request's connection in the extensions that the listener sets. Without it, the
    /// upstream gets an unknown address.
    #[must_use]
    pub fn client(self, client: impl Fn(&Extensions) -> Option<Client> + Send + Sync + 'static) -> Self {
        Self { client: Some(Arc::new(client)), ..self }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self { host: Host::default(), trust: Trust::NOBODY, client: None }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("host", &self.host)
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}

/// Inside Semel's layer. Adds the base path, removes hop-by-hop headers, tells where the request came from, and
/// tunnels upgrades of unprotected requests.
#[derive(Debug, Clone)]
pub struct Outbound {
    upstream: Upstream,
    options: Arc<Options>,
}

impl Outbound {
    /// In front of `upstream`.
    pub fn new(upstream: Upstream, options: Options) -> Self {
        Self { upstream, options: Arc::new(options) }
    }
}

impl Service<Request<semel_http::Body>> for Outbound {
    type Response = Response<upstream::Body>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Response<upstream::Body>, Failure>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        self.upstream.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<semel_http::Body>) -> Self::Future {
        let upgrade = upgrade(&request, self.upstream.target());
        let client = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        if let Err(failure) = send(&mut request, upgrade, self.upstream.target(), &self.options) {
            return Box::pin(std::future::ready(Err(failure)));
        }
        let exchange = self.upstream.call(request);
        Box::pin(async move {
            let mut response = exchange.await?;
            let received = response.version();
            let switched = (response.status() == StatusCode::SWITCHING_PROTOCOLS)
                .then(|| response.headers().get(UPGRADE).cloned());
            let headers = response.headers_mut();
            one_length(headers);
            hops::strip_named(headers, &[]);
            hops::strip(headers);
            origin::via(headers, received);
            // The listener decides which HTTP version is spoken with the client.
            *response.version_mut() = Version::HTTP_11;
            if let Some(protocol) = switched {
                let headers = response.headers_mut();
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                if let Some(protocol) = protocol {
                    headers.insert(UPGRADE, protocol);
                }
                if let Some(client) = client {
                    tunnel::dig(client, hyper::upgrade::on(&mut response));
                }
            }
            Ok(response)
        })
    }
}

/// The request as the upstream gets it. Fails if its target would be too long, which [`Inbound`](super::Inbound) has
/// refused already.
fn send(
    request: &mut Request<semel_http::Body>,
    upgrade: Option<HeaderValue>,
    target: &Target,
    options: &Options,
) -> Result<(), Failure> {
    *request.uri_mut() = Uri::from(target.join(request.uri()).map_err(|_| Failure::Unreachable)?);
    let client = options.client.as_ref().and_then(|client| client(request.extensions()));
    let received = request.version();
    let headers = request.headers_mut();
    hops::strip(headers);
    // `Expect` is answered on the client's side, when the body is read.
    headers.remove(EXPECT);
    origin::add_origin_headers(headers, client, &options.trust);
    origin::via(headers, received);
    if options.host == Host::Target {
        // An authority is a header's text.
        headers.remove(HOST);
        if let Ok(host) = HeaderValue::from_str(target.authority().as_str()) {
            headers.insert(HOST, host);
        }
    }
    if let Some(protocol) = upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    Ok(())
}

/// A valid length, or none, because a server would end the message by it. With chunks the length is removed: hyper
/// reads by chunks but leaves a length beside them. `5, 5` and two equal lines count as one length.
fn one_length(headers: &mut HeaderMap) {
    if headers.contains_key(TRANSFER_ENCODING) {
        headers.remove(CONTENT_LENGTH);
        return;
    }
    let Some(first) = headers.get(CONTENT_LENGTH) else { return };
    let digits = first.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default().trim_ascii();
    // If they differ, there is no response.
    match HeaderValue::from_bytes(digits) {
        Ok(length) => headers.insert(CONTENT_LENGTH, length),
        Err(_) => headers.remove(CONTENT_LENGTH),
    };
}

/// The protocol that a request may upgrade to. None for protected requests, whose upgraded traffic could not be
/// replayed, and not plain-text HTTP/2, whose requests would bypass Semel.
fn upgrade<B>(request: &Request<B>, target: &Target) -> Option<HeaderValue> {
    let is_possible = request.version() == Version::HTTP_11
        && request.extensions().get::<Attempt>().is_none()
        && target.transport() != Transport::H2c;
    let protocols = hops::upgrade(request.headers()).filter(|_| is_possible)?;
    let is_http = protocols.as_bytes().split(|byte| *byte == b',').any(|protocol| {
        let name = protocol.split(|byte| *byte == b'/').next().unwrap_or_default().trim_ascii();
        [&b"h2c"[..], b"h2", b"http", b"tls"].iter().any(|http| name.eq_ignore_ascii_case(http))
    });
    (!is_http).then_some(protocols)
}
