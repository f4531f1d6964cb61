//! One request over HTTP/2. The end of a stream proves that nothing was processed only where the protocol says so.
//!
//! Over the `h2` crate, not through hyper: hyper reports a GOAWAY that a request ran into and one that left it to be
//! processed by the same error.

use super::body::Body;
use super::dial::NewConnection;
use super::failed::Failed;
use super::response_timer::ResponseTimer;
use super::socket::Socket;
use ::h2::client::{Builder, SendRequest};
use ::h2::{Error, Reason, SendStream};
use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Request, Response, Uri, Version};
use http_body::Body as _;
use http_body_util::BodyExt;
use semel::{Attempt, Clock, SystemClock};
use semel_http::is_endless;
use semel_http::{BoxError, Failure};
use semel_net::target::Target;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::AbortHandle;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::upstream::h2";

const STREAM_WINDOW: u32 = 1024 * 1024;
const CONNECTION_WINDOW: u32 = 4 * 1024 * 1024;

/// A connection, driven by its own task. If dropped, it closes with its last stream.
#[derive(Debug)]
pub(super) struct Connection {
    sender: SendRequest<Bytes>,
    socket: Arc<Socket>,
    under_way: AtomicUsize,
    /// When the last stream ended, in milliseconds of uptime.
    used: AtomicU64,
    /// Whether a stream was not answered in time. The network may be broken without any notice.
    is_suspect: AtomicBool,
}

impl Connection {
    /// Starts HTTP/2 on a new connection.
    pub(super) async fn over(dialled: NewConnection, head_bytes_max: u32) -> Result<Self, Error> {
        let mut builder = Builder::new();
        builder
            .enable_push(false)
            .max_header_list_size(head_bytes_max)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        let (sender, connection) = builder.handshake(dialled.stream).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(target: LOG, %error, "an HTTP/2 connection to the upstream ended");
            }
        });
        let (under_way, used) = (AtomicUsize::new(0), AtomicU64::new(millis(SystemClock.uptime())));
        let is_suspect = AtomicBool::new(false);
        Ok(Self { sender, socket: dialled.socket, under_way, used, is_suspect })
    }

    /// Whether new streams can be opened: it has not ended, got no GOAWAY, and left no stream unanswered. Running
    /// streams may still be answered.
    pub(super) fn is_live(&self) -> bool {
        !self.is_suspect.load(Ordering::Relaxed) && self.sender().is_some() && !self.socket.is_ended()
    }

    /// Whether it was idle for `limit`.
    pub(super) fn is_idle(&self, now: Duration, limit: Duration) -> bool {
        let idle = millis(now).saturating_sub(self.used.load(Ordering::Relaxed));
        self.under_way.load(Ordering::Relaxed) == 0 && u128::from(idle) >= limit.as_millis()
    }

    /// A slot for one more stream, unless it was idle for `limit`. Only as many as the upstream allows, so that no
    /// stream is queued: a queued one could be sent after its attempt has lost its lease.
    pub(super) fn lease(self: &Arc<Self>, now: Duration, limit: Duration) -> Option<Lease> {
        let is_full = self.under_way.load(Ordering::Relaxed) >= self.sender.current_max_send_streams();
        (!is_full && !self.is_idle(now, limit)).then(|| Lease::first(self))
    }

    /// The sender, if it still accepts requests.
    fn sender(&self) -> Option<SendRequest<Bytes>> {
        self.sender.clone().ready().now_or_never()?.ok()
    }
}

/// A slot for one stream.
#[derive(Debug)]
pub(super) struct Lease(Arc<Connection>);

impl Lease {
    pub(super) fn first(connection: &Arc<Connection>) -> Self {
        connection.under_way.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connection))
    }

    /// The stream was not answered in time: no other one is opened on this connection.
    pub(super) fn suspect(&self) {
        self.0.is_suspect.store(true, Ordering::Relaxed);
    }

    /// A slot on a connection that nobody else uses.
    pub(super) fn alone(connection: Connection) -> Self {
        Self::first(&Arc::new(connection))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.used.store(millis(SystemClock.uptime()), Ordering::Relaxed);
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends `request` on its own stream.
pub(super) async fn exchange(
    lease: Lease,
    mut request: Request<semel_http::Body>,
    attempt: Option<Attempt>,
    response_timeout: Duration,
    target: &Target,
) -> Result<Response<Body>, Failed> {
    let unsent = |cause: &'static str| Failed::new(Failure::Unreachable, cause);
    let mut sender = lease.0.sender().ok_or_else(|| unsent("the connection was closed"))?;
    let mut timer = ResponseTimer::start(response_timeout, &mut request, attempt.is_some());
    let (head, body) = prepare(request, target)?;
    let is_end = body.is_end_stream();
    if let Some(Err(error)) = attempt.as_ref().map(Attempt::check) {
        return Err(Failed::new(Failure::Unreachable, error));
    }
    let socket = &lease.0.socket;
    let before = socket.accepted();
    let (response, sending) =
        sender.send_request(head, is_end).map_err(|error| Failed::new(Failure::Unreachable, error))?;
    let broken = Broken::default();
    let mut sending = Sending::of(body, sending, is_end, &broken, attempt.as_ref());
    let mut response = pin!(response);
    let response = match timer.wait(&mut response).await {
        Some(response) => response,
        // If the socket accepted nothing since, nothing of the request was sent, and it must stay so: otherwise the
        // library keeps it and sends it later. Other streams of the connection are stuck as well.
        None if socket.accepted() == before && socket.seal() == before => {
            lease.suspect();
            return Err(Failed::new(Failure::Unreachable, "no response in time"));
        }
        None => {
            sending.stop();
            let Some(Ok(response)) = timer.arrived(&mut response).await else {
                lease.suspect();
                return Err(Failed::new(Failure::TimedOut, "no response in time"));
            };
            Ok(response)
        }
    };
    let response = response.map_err(|error| {
        let is_unprocessed = proves_unprocessed(&error) || error.is_io() && socket.seal() == before;
        let failure = if is_unprocessed { Failure::Unreachable } else { Failure::Broken };
        // If the request's body caused the reset, that is the cause.
        match broken.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(cause) => Failed::new(failure, cause),
            None => Failed::new(failure, error),
        }
    })?;
    let is_timed = attempt.is_some() && !is_endless(response.headers());
    let length = content_length(response.headers());
    Ok(response.map(|stream| Body::h2(stream, length, lease, sending, is_timed.then(|| timer.remaining()))))
}

/// Whether the upstream says that it did not and will not process the request: the stream was refused, or is beyond
/// the last one of a GOAWAY. (The library ends a stream by the peer's GOAWAY only in that case.)
fn proves_unprocessed(error: &Error) -> bool {
    error.is_remote()
        && (error.is_go_away() || error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM))
}

/// The request for HTTP/2: with scheme and authority, and without hop-by-hop headers.
fn prepare(
    request: Request<semel_http::Body>,
    target: &Target,
) -> Result<(Request<()>, semel_http::Body), Failed> {
    let (mut parts, body) = request.into_parts();
    let host = parts.headers.remove(HOST);
    for name in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        parts.headers.remove(name);
    }
    let authority = match &host {
        Some(host) if !host.is_empty() => Authority::try_from(host.as_bytes()),
        _ => Ok(target.authority().clone()),
    };
    let authority = authority.map_err(|error| Failed::new(Failure::Unreachable, error))?;
    let path = parts.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let uri = Uri::builder().scheme(target.scheme()).authority(authority).path_and_query(path).build();
    let mut head = Request::new(());
    *head.method_mut() = parts.method;
    *head.uri_mut() = uri.map_err(|error| Failed::new(Failure::Unreachable, error))?;
    *head.version_mut() = Version::HTTP_2;
    *head.headers_mut() = parts.headers;
    Ok((head, body))
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(http::header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Why the rest of a request's body could not be read.
type Broken = Arc<Mutex<Option<BoxError>>>;

/// A request's body that is being sent. If dropped, it stops.
#[derive(Debug)]
pub(super) struct Sending(Option<AbortHandle>);

impl Sending {
    fn of(
        body: semel_http::Body,
        stream: SendStream<Bytes>,
        is_end: bool,
        broken: &Broken,
        attempt: Option<&Attempt>,
    ) -> Self {
        if is_end {
            return Self(None);
        }
        let mut pumping = Box::pin(pump(body, stream, Arc::clone(broken), attempt.cloned()));
        // What fits into the upstream's window is sent at once.
        if (&mut pumping).now_or_never().is_some() {
            return Self(None);
        }
        Self(Some(tokio::spawn(pumping).abort_handle()))
    }

    fn stop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends a body as far as the window allows, and until its attempt is overdue. If the stream ends early, its response
/// says why.
async fn pump(
    mut body: semel_http::Body,
    mut stream: SendStream<Bytes>,
    broken: Broken,
    attempt: Option<Attempt>,
) {
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                stream.send_reset(Reason::CANCEL);
                return;
            }
        };
        match frame.into_data() {
            Ok(mut data) => {
                let is_last = body.is_end_stream();
                while !data.is_empty() {
                    stream.reserve_capacity(data.len());
                    let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else {
                        return;
                    };
                    if attempt.as_ref().is_some_and(Attempt::is_overdue) {
                        stream.send_reset(Reason::CANCEL);
                        return;
                    }
                    let part = data.split_to(room.min(data.len()));
                    let is_end = is_last && data.is_empty();
                    if stream.send_data(part, is_end).is_err() || is_end {
                        return;
                    }
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    let _ = stream.send_trailers(trailers);
                    return;
                }
            }
        }
    }
    let _ = stream.send_data(Bytes::new(), true);
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
