//! Hands one request to the service and returns its response, after a last check of HTTP/2 requests.

use super::body::Body;
use super::proxies::Proxies;
use super::requests::{Arrival, Requests, Slot};
use super::taking::SendProgress;
use crate::wire::{Allowance, Exchange, HeadRoom, MessageRefusal, Rate, Refusals, Running, is_disguised};
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, UPGRADE};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// Where a request came from; an extension of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The client's address, or that of a proxy in front of us.
    pub address: SocketAddr,
    /// The address that it connected to.
    pub local: SocketAddr,
    /// Whether it came by TLS.
    pub is_tls: bool,
}

/// The verified client certificate (DER); an extension of each request with one.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificate(pub Arc<[u8]>);

/// Only its length: the name in it does not belong in a log.
impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientCertificate({} bytes)", self.0.len())
    }
}

/// What all requests of one connection share.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) peer: Peer,
    pub(super) certificate: Option<ClientCertificate>,
    pub(super) exchange: Arc<Exchange>,
    /// The slots for requests of all connections.
    pub(super) requests: Arc<Requests>,
    pub(super) heads: HeadRoom,
    pub(super) proxies: Proxies,
    pub(super) refusals: Refusals,
    pub(super) body_timeout: Duration,
    pub(super) rate_min: Rate,
    pub(super) headers_max: usize,
}

/// The response to a request that the service does not answer.
fn unanswered(refusal: MessageRefusal, refusals: &Refusals) -> Response<semel_http::Body> {
    refusals.observer.observe(refusal);
    refused(refusal, &refusals.prefix, false)
}

/// How much is handed to an HTTP/2 stream at once. The library accepts a chunk of any length as soon as the client's
/// window has room for one byte; the rest would wait there uncounted.
const PIECE_BYTES: usize = 16 * 1024;

/// A response's body. The request counts as answered when this is dropped.
pub(super) struct Answer {
    body: semel_http::Body,
    /// The rest of the last frame.
    rest: Bytes,
    /// Its HTTP/2 stream, if it has one.
    taking: Option<Arc<SendProgress>>,
    _running: (Running, Option<Slot>),
}

impl Answer {
    fn new(body: semel_http::Body, running: Running, slot: Option<Slot>) -> Self {
        Self { body, rest: Bytes::new(), taking: SendProgress::here(), _running: (running, slot) }
    }

    fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, semel_http::BoxError>>> {
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

pub(super) async fn answer<S>(
    mut service: S,
    line: Line,
    request: Request<Incoming>,
) -> Result<Response<Answer>, Infallible>
where
    S: tower_service::Service<Request<Body>, Response = Response<semel_http::Body>, Error = Infallible>,
{
    let running = line.exchange.begin();
    let allowance = Allowance::reading(line.rate_min, line.body_timeout);
    let mut request = request.map(|incoming| Body::new(incoming, allowance));
    let checked = few_headers(&request, line.headers_max)
        .and_then(|()| check_target(&request))
        .and_then(|()| one_host(&request))
        .and_then(|()| one_length(&request));
    let slot = checked.and_then(|()| {
        let client = line.proxies.client(line.peer.address.ip(), request.headers());
        let arrival = arrival(&request, &line.exchange);
        let mut head = line.heads.slot();
        head.resize(head_bytes(&request)).map_err(|_| MessageRefusal::Busy)?;
        line.requests.take(client, arrival, head).map_err(|_| MessageRefusal::Busy)
    });
    let slot = match slot {
        Ok(slot) => slot,
        Err(refusal) => {
            let response = unanswered(refusal, &line.refusals);
            return Ok(response.map(|body| Answer::new(body, running, None)));
        }
    };
    request.body_mut().within(slot.clone());
    request.extensions_mut().insert(slot.clone());
    request.extensions_mut().insert(line.peer);
    if let Some(certificate) = line.certificate {
        request.extensions_mut().insert(certificate);
    }
    let is_connect = request.method() == Method::CONNECT;
    let wants_upgrade = wants_upgrade(&request);
    let watch = request.body().watch();
    poll_fn(|context| service.poll_ready(context)).await?;
    let mut response = tokio::select! {
        biased;
        () = slot.end_requested() => unanswered(MessageRefusal::Busy, &line.refusals),
        response = service.call(request) => response?,
    };
    watch.answered();
    if let Some(refusal) = watch.refusal_instead_of(response.status()) {
        response = refused(refusal, &line.refusals.prefix, true);
    }
    if wants_upgrade {
        let status = response.status();
        line.exchange
            .decide(status == StatusCode::SWITCHING_PROTOCOLS || (is_connect && status.is_success()));
    }
    Ok(response.map(|body| Answer::new(body, running, Some(slot))))
}

/// How much of the body has arrived. For HTTP/2 this is not known.
fn arrival(request: &Request<Body>, exchange: &Exchange) -> Arrival {
    let is_whole =
        request.body().is_end_stream() || (request.version() != Version::HTTP_2 && exchange.is_whole());
    if is_whole { Arrival::Whole } else { Arrival::Partial }
}

/// The memory of a request's head while the request runs.
fn head_bytes<B>(request: &Request<B>) -> usize {
    const PER_LINE: usize = 128;
    let lines = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + PER_LINE);
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + lines.sum::<usize>()
}

/// Whether the scanner waits for a decision after this request; it uses the same test.
fn wants_upgrade<B>(request: &Request<B>) -> bool {
    match request.version() {
        Version::HTTP_11 => request.method() == Method::CONNECT || request.headers().contains_key(UPGRADE),
        Version::HTTP_10 => request.method() == Method::CONNECT,
        _ => false,
    }
}

/// Header lines of HTTP/2, whose library limits only their bytes. (For HTTP/1, the scanner has counted them.)
fn few_headers<B>(request: &Request<B>, headers_max: usize) -> Result<(), MessageRefusal> {
    let is_http2 = request.version() == Version::HTTP_2;
    if is_http2 && request.headers().len() > headers_max {
        Err(MessageRefusal::TooManyHeaders)
    } else {
        Ok(())
    }
}

/// Target forms of HTTP/2. (For HTTP/1, the scanner has checked the bytes. The library removes fragments.)
fn check_target<B>(request: &Request<B>) -> Result<(), MessageRefusal> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let uri = request.uri();
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(MessageRefusal::UserInfo);
    }
    let is_http = |scheme: &str| ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let is_for_all = uri.path() == "*" && request.method() != Method::OPTIONS;
    if is_for_all || !uri.scheme_str().is_none_or(is_http) { Err(MessageRefusal::Target) } else { Ok(()) }
}

/// In HTTP/2, `:authority` names the host, and a `host` header must be equal. (For HTTP/1, the scanner has checked the
/// bytes.)
fn one_host<B>(request: &Request<B>) -> Result<(), MessageRefusal> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, authority) = (hosts.next(), request.uri().authority());
    if hosts.next().is_some() {
        return Err(MessageRefusal::TwoHosts);
    }
    match (host, authority) {
        (None, None) => Err(MessageRefusal::NoHost),
        (Some(host), Some(authority))
            if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
        {
            Err(MessageRefusal::OtherHost)
        }
        _ => Ok(()),
    }
}

/// HTTP/2 does not frame by headers, but the request may be forwarded over HTTP/1 to programs that do. (The library
/// refuses conflicting lengths and transfer codings.)
fn one_length<B>(request: &Request<B>) -> Result<(), MessageRefusal> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let headers = request.headers();
    if headers.get_all(CONTENT_LENGTH).iter().count() > 1 {
        return Err(MessageRefusal::TwoLengths);
    }
    if headers.keys().any(|name| is_disguised(name.as_str().as_bytes())) {
        return Err(MessageRefusal::Disguised);
    }
    Ok(())
}

fn refused(refusal: MessageRefusal, prefix: &str, is_begun: bool) -> Response<semel_http::Body> {
    let mut response = Response::new(Bytes::from(refusal.problem(prefix, is_begun)).into());
    *response.status_mut() = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if refusal == MessageRefusal::Busy {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = semel_http::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        let Some(taking) = this.taking.clone() else { return Pin::new(&mut this.body).poll_frame(context) };
        // A request for more means that the rest was consumed.
        taking.taken();
        let piece = ready!(this.poll_piece(context));
        if let Some(Ok(frame)) = &piece {
            taking.offer(frame.data_ref().map_or(1, |data| data.len().max(1)));
        }
        Poll::Ready(piece)
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, of_body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower().saturating_add(rest));
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint
    }
}
