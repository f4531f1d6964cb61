//! One request over HTTP/1. If it fails, what matters is whether a byte was sent. A request is never sent twice.

use super::body::Body;
use super::dial::NewConnection;
use super::failed::{Failed, NoResponse};
use super::pool::PooledConnection;
use super::response_timer::ResponseTimer;
use super::socket::Socket;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use semel::Attempt;
use semel_http::Failure;
use semel_http::is_endless;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::upstream::h1";

/// A connection, driven by its own task. If dropped, it closes when it is idle.
#[derive(Debug)]
pub(super) struct Connection {
    sender: http1::SendRequest<semel_http::Body>,
    socket: Arc<Socket>,
    driver: AbortHandle,
}

impl Connection {
    /// Starts HTTP/1 on a new connection.
    pub(super) async fn over(dialled: NewConnection, head_bytes_max: u32) -> Result<Self, hyper::Error> {
        let mut builder = http1::Builder::new();
        let head_bytes_max = head_bytes_max as usize;
        // The second value limits an incomplete head; hyper's minimum is 8 KiB.
        builder.max_header_size(head_bytes_max).max_buf_size(head_bytes_max.max(READ_BUFFER_MIN));
        builder.max_headers(HEAD_LINES_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(dialled.stream)).await?;
        let driving = async move {
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(target: LOG, %error, "a connection to the upstream ended");
            }
        };
        let driver = tokio::spawn(driving).abort_handle();
        Ok(Self { sender, socket: dialled.socket, driver })
    }

    /// Whether it can carry a request now, as far as is known here.
    pub(super) fn is_live(&self) -> bool {
        self.sender.is_ready() && self.socket.is_open() && self.socket.is_quiet()
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether the last exchange is over for the connection too.
    pub(super) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// The last exchange is over for its request.
    pub(super) fn end(&self) {
        self.socket.end();
    }

    /// Resolves with the last exchange; an error if the connection ended instead.
    pub(super) async fn ready(&mut self) -> Result<(), hyper::Error> {
        self.sender.ready().await
    }

    /// Closes it at once.
    pub(super) fn abort(self) {
        self.socket.seal();
        self.driver.abort();
    }
}

const READ_BUFFER_MIN: usize = 64 * 1024;
/// More than any real head has; hyper's default of 100 would leave a success in doubt because of its header lines.
/// hyper reserves space for that many lines with each response, which costs noticeably from a thousand on.
pub const HEAD_LINES_MAX: usize = 256;

/// Sends `request` over `lent`. Returns the request if the connection did not accept it.
pub(super) async fn exchange(
    mut lent: PooledConnection,
    mut request: Request<semel_http::Body>,
    attempt: Option<Attempt>,
    response_timeout: Duration,
) -> Result<Response<Body>, NoResponse> {
    let is_protected = attempt.is_some();
    let is_upgrade = request.headers().contains_key(UPGRADE);
    *request.version_mut() = Version::HTTP_11;
    let mut timer = ResponseTimer::start(response_timeout, &mut request, is_protected);
    let connection = lent.connection();
    let socket = Arc::clone(&connection.socket);
    socket.begin(attempt);
    let mut sending = pin!(connection.sender.try_send_request(request));
    let sent = match timer.wait(&mut sending).await {
        Some(sent) => sent,
        None if socket.seal() == 0 => {
            return Err(Failed::new(Failure::Unreachable, "no response in time").into());
        }
        // The socket is sealed: reading on sends nothing more.
        None => match timer.arrived(&mut sending).await {
            Some(Ok(response)) => Ok(response),
            _ => return Err(Failed::new(Failure::TimedOut, "no response in time").into()),
        },
    };
    let response = match sent {
        Ok(response) => response,
        Err(mut error) => {
            // Whatever the connection still holds of it is never sent.
            let is_unsent = socket.seal() == 0;
            let message = error.take_message();
            let error = error.into_error();
            return Err(match message {
                Some(request) if is_unsent => NoResponse::HandedBack(Box::new(request)),
                _ if is_unsent => Failed::new(Failure::Unreachable, error).into(),
                _ => Failed::new(Failure::Broken, error).into(),
            });
        }
    };
    if socket.accepted() == 0 {
        // This response answers something else: an earlier request, or nothing. The first byte may leave in between.
        let failure = if socket.seal() == 0 { Failure::Unreachable } else { Failure::Broken };
        return Err(Failed::new(failure, "a response came before the request was sent").into());
    }
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        if !is_upgrade {
            let cause = "it switched protocols without being asked";
            return Err(Failed::new(Failure::Broken, cause).into());
        }
        // The tunnel owns the connection now; its driver hands it over and ends.
        lent.let_go();
        return Ok(response.map(|_| Body::empty()));
    }
    if !response.body().is_end_stream() && !has_plain_coding(response.headers()) {
        let cause = "its response has a transfer coding other than chunked";
        return Err(Failed::new(Failure::Broken, cause).into());
    }
    lent.note_keep_alive(&response);
    let is_timed = is_protected && !is_endless(response.headers());
    Ok(response.map(|incoming| Body::h1(incoming, lent, is_timed.then(|| timer.remaining()))))
}

/// Whether hyper can read a response's body. It decodes only `chunked`, so the body of `gzip, chunked` would be
/// forwarded and stored compressed, without a header that says so.
fn has_plain_coding(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter().map(|line| line.as_bytes().trim_ascii());
    let is_plain =
        |coding: &[u8]| [&b"chunked"[..], b"identity"].iter().any(|known| coding.eq_ignore_ascii_case(known));
    lines.next().is_none_or(is_plain) && lines.next().is_none()
}

/// The request for HTTP/1.1: with a `Host`, with a length if a body is expected and empty, and in chunks if its length
/// is not known; otherwise hyper would send no body with GET and HEAD.
pub(super) fn prepare(request: &mut Request<semel_http::Body>, authority: &str) {
    if !request.headers().contains_key(HOST)
        && let Ok(host) = HeaderValue::from_str(authority)
    {
        request.headers_mut().insert(HOST, host);
    }
    // In any letter case, as services read it.
    let expects_body = [Method::POST, Method::PUT, Method::PATCH]
        .iter()
        .any(|method| request.method().as_str().eq_ignore_ascii_case(method.as_str()));
    if expects_body && request.body().is_end_stream() {
        request.headers_mut().entry(CONTENT_LENGTH).or_insert(HeaderValue::from_static("0"));
    }
    let has_length =
        request.body().size_hint().exact().is_some() || request.headers().contains_key(CONTENT_LENGTH);
    if !request.body().is_end_stream() && !has_length {
        request.headers_mut().insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}
