//! The first step of every request: it gives the request one form, however it was written, so that Semel and the
//! upstream see the same.

use super::{hops, refusal};
use crate::upstream::leads_out;
use http::header::{COOKIE, HOST};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, Version};
use semel_http::{Body, BoxError, Form, Problem};
use semel_net::target::PATH_BYTES_MAX;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The gateway's settings for requests.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Headers that clients cannot remove through `Connection`, besides the standard ones: keys, callers and
    /// fingerprints are read from them.
    pub end_to_end: Vec<HeaderName>,
    /// Where the specification is published; see [`semel_http::Layer::publishing`].
    pub prefix: String,
    /// The base path of every request; empty, or without a trailing slash.
    pub base: String,
}

/// Outside Semel's layer. Brings the target to origin form and sets `Host` to the requested authority, removes what
/// `Connection` names, refuses CONNECT and targets that are too long or leave the base path, and answers requests that
/// get no response.
#[derive(Debug, Clone)]
pub struct Inbound<S> {
    inner: S,
    rules: Arc<Rules>,
}

impl<S> Inbound<S> {
    /// Around `inner`: Semel's layer.
    pub fn new(inner: S, rules: Rules) -> Self {
        Self { inner, rules: Arc::new(rules) }
    }
}

impl<S, B> tower_service::Service<Request<B>> for Inbound<S>
where
    S: tower_service::Service<Request<B>, Response = Response<Body>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Checked for each request, on its clone.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        if let Err(refused) = receive(&mut parts, &self.rules) {
            return Box::pin(std::future::ready(Ok(*refused)));
        }
        let (mut inner, rules) = (self.inner.clone(), Arc::clone(&self.rules));
        Box::pin(async move {
            let form = Form::of(&parts.headers);
            let exchange = async {
                std::future::poll_fn(|context| inner.poll_ready(context)).await?;
                inner.call(Request::from_parts(parts, body)).await
            };
            Ok(match exchange.await {
                Ok(response) => response,
                Err(error) => coded(refusal::unanswered(&error.into()), form, &rules.prefix),
            })
        })
    }
}

/// A problem as a response that carries its code, so that refusals are counted: no layer has reported this one.
fn coded(problem: Problem, form: Form, prefix: &str) -> Response<Body> {
    let code = problem.code();
    let mut response = problem.into_response(form, prefix);
    response.extensions_mut().insert(code);
    response
}

/// Brings a request to its normal form, or refuses it.
fn receive(parts: &mut Parts, rules: &Rules) -> Result<(), Box<Response<Body>>> {
    let form = Form::of(&parts.headers);
    let refused = |problem: Problem| Box::new(coded(problem, form, &rules.prefix));
    let malformed = |detail| refused(refusal::malformed(detail));
    // In any letter case: a service that reads `connect` as CONNECT would treat what follows as a tunnel.
    if parts.method.as_str().eq_ignore_ascii_case(Method::CONNECT.as_str()) {
        return Err(refused(refusal::tunnel()));
    }
    if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > PATH_BYTES_MAX) {
        return Err(Box::new(refusal::too_long()));
    }
    if parts.headers.get_all(HOST).iter().nth(1).is_some() {
        return Err(malformed("It has several Host headers."));
    }
    // Over HTTP/2, and of a target in absolute form, the target's authority is the one that counts (RFC 9112, 3.2.2).
    if let Some(authority) = parts.uri.authority() {
        if authority.as_str().contains('@') {
            return Err(malformed("Its target contains a user name."));
        }
        let host = HeaderValue::from_str(authority.as_str())
            .map_err(|_| malformed("The host in its target is not valid."))?;
        parts.headers.insert(HOST, host);
        let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        parts.uri = Uri::from(path);
    } else {
        match parts.headers.get(HOST) {
            None if parts.version == Version::HTTP_11 => return Err(malformed("It has no Host.")),
            Some(host) if !host.is_empty() && !is_host(host) => {
                return Err(malformed("Its Host is not valid."));
            }
            _ => {}
        }
    }
    if leads_out(&rules.base, parts.uri.path()) {
        return Err(malformed("Its path leads out of the service's base path."));
    }
    if parts.version == Version::HTTP_2 {
        join_crumbs(&mut parts.headers);
    }
    hops::strip_named(&mut parts.headers, &rules.end_to_end);
    Ok(())
}

/// Over HTTP/2 a cookie may come in pieces, which HTTP/1 servers would read as several cookies (RFC 9113, 8.2.3).
fn join_crumbs(headers: &mut HeaderMap) {
    let crumbs: Vec<_> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if crumbs.len() < 2 {
        return;
    }
    // Headers joined by this are a header.
    if let Ok(mut cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        cookie.set_sensitive(true);
        headers.insert(COOKIE, cookie);
    }
}

fn is_host(value: &HeaderValue) -> bool {
    Authority::try_from(value.as_bytes()).is_ok_and(|authority| !authority.as_str().contains('@'))
}
