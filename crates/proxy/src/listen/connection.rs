//! One client's connection: which protocol is served on it, and how it ends.

use super::accept::Shutdown;
use super::answer::{ClientCertificate, Line, Peer, answer};
use super::body::Body;
use super::options::Options;
use super::requests::Requests;
use super::slots::{Connection, Slot};
use super::taking::Streams;
use super::tls::Credentials;
use crate::wire::{BUFFER_BYTES, Exchange, HeadRoom, Protocol, Scanner, Stream};
use http::{Request, Response};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::listen::connection";

/// HTTP/2 peers are pinged at this interval, and are gone if they do not answer in this time.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How many streams a client may reset before they were handled, and how many may be reset for its errors. Above that,
/// the connection is closed; ordinary clients stay far below.
const RESET_STREAMS_MAX: usize = 100;
const ERROR_STREAMS_MAX: usize = 256;
/// How many bytes may be written between two checks of an idle connection: pings and their answers.
const CHATTER_BYTES: u64 = 1024;
/// How much memory heads of more than a few KiB may use together, both incomplete ones and those of running requests.
const HEADS_BYTES: usize = 32 << 20;
/// How much of its bodies an HTTP/2 client may send before they are read: per stream, and per connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 128 * 1024;
/// How many bytes may wait for an HTTP/2 client in one stream, besides the chunk that is being written.
const STREAM_SEND_BYTES: usize = 32 * 1024;

/// What all connections of one socket share.
pub(super) struct Server {
    options: Options,
    tls: Option<Credentials>,
    http1: http1::Builder,
    http2: http2::Builder<Streams>,
    /// The slots for requests of all connections.
    requests: Arc<Requests>,
    /// The memory for their heads.
    heads: HeadRoom,
}

/// A service as connections call it.
pub(super) trait Service:
    tower_service::Service<
        Request<Body>,
        Response = Response<semel_http::Body>,
        Error = Infallible,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<S> Service for S where
    S: tower_service::Service<
            Request<Body>,
            Response = Response<semel_http::Body>,
            Error = Infallible,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

impl Server {
    pub(super) fn new(options: Options, tls: Option<Credentials>) -> Self {
        let mut http1 = http1::Builder::new();
        // The stream below times heads: it can distinguish idle from slow.
        http1.timer(TokioTimer::new()).header_read_timeout(None);
        // Also limits what waits for a client that does not read; besides a head there is room for a chunk of the
        // body.
        http1.max_buf_size(options.head_bytes_max.saturating_add(BUFFER_BYTES));
        if options.headers_max > 100 {
            http1.max_headers(options.headers_max);
        }
        let mut http2 =
            http2::Builder::new(Streams { write_timeout: options.write_timeout, rate: options.rate_min });
        http2
            .timer(TokioTimer::new())
            .max_concurrent_streams(options.streams_max)
            .max_header_list_size(u32::try_from(options.head_bytes_max).unwrap_or(u32::MAX))
            .max_pending_accept_reset_streams(RESET_STREAMS_MAX)
            .max_local_error_reset_streams(ERROR_STREAMS_MAX)
            .max_send_buf_size(STREAM_SEND_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let requests = Requests::new(options.requests_max);
        let heads = HeadRoom::new(HEADS_BYTES);
        Self { options, tls, http1, http2, requests, heads }
    }

    /// Serves one connection until it ends or is cut off.
    pub(super) async fn connection<S: Service>(
        self: Arc<Self>,
        service: S,
        tcp: TcpStream,
        peer: Peer,
        slot: Slot,
        mut end: watch::Receiver<Shutdown>,
    ) {
        let mut cut_off = end.clone();
        tokio::select! {
            biased;
            () = self.secured(service, tcp, peer, slot, &mut end) => {}
            () = until_shutdown(&mut cut_off, Shutdown::Now) => {}
        }
    }

    async fn secured<S: Service>(
        &self,
        service: S,
        tcp: TcpStream,
        mut peer: Peer,
        slot: Slot,
        end: &mut watch::Receiver<Shutdown>,
    ) {
        let Some(tls) = &self.tls else {
            return Box::pin(self.scanned(service, tcp, (peer, None), slot, end)).await;
        };
        peer.is_tls = true;
        // On the heap, like everything that not every connection needs: there are thousands of connections.
        match Box::pin(timeout(self.options.handshake_timeout, tls.acceptor().accept(tcp))).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate = shown.map(|shown| ClientCertificate(shown.as_ref().into()));
                Box::pin(self.scanned(service, stream, (peer, certificate), slot, end)).await;
            }
            Ok(Err(error)) => {
                tracing::debug!(target: LOG, peer = %peer.address, %error, "TLS handshake failed");
            }
            Err(_) => tracing::debug!(target: LOG, peer = %peer.address, "TLS handshake took too long"),
        }
    }

    async fn scanned<S, I>(
        &self,
        service: S,
        io: I,
        (peer, certificate): (Peer, Option<ClientCertificate>),
        slot: Slot,
        end: &mut watch::Receiver<Shutdown>,
    ) where
        S: Service,
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (connection, others) = (slot.connection(), slot.others());
        let exchange = Arc::clone(connection.exchange());
        let (scanner, timeouts) = (Scanner::new(self.options.limits()), self.options.timeouts());
        let (refusals, head_slot) = (self.options.refusals(), self.heads.slot());
        let mut stream =
            Stream::new(io, scanner, Arc::clone(&exchange), timeouts, refusals.clone(), (slot, head_slot));
        let protocol = tokio::select! {
            biased;
            protocol = stream.protocol() => protocol,
            () = connection.end_requested() => Err(std::io::ErrorKind::Interrupted.into()),
            () = until_shutdown(end, Shutdown::Soon) => Err(std::io::ErrorKind::Interrupted.into()),
        };
        let (requests, heads) = (Arc::clone(&self.requests), self.heads.clone());
        let proxies = self.options.proxies.clone();
        let Options { body_timeout, rate_min, headers_max, .. } = self.options;
        let line = Line {
            peer,
            certificate,
            exchange,
            requests,
            heads,
            proxies,
            refusals,
            body_timeout,
            rate_min,
            headers_max,
        };
        match protocol {
            // On the heap from here on: until now, a connection needs far less.
            Ok(Protocol::Http1) => Box::pin(self.http1(service, stream, line, &connection, end)).await,
            Ok(Protocol::Http2) if !others.admit_http2(&connection) => {
                tracing::debug!(target: LOG, peer = %peer.address, "too many connections use HTTP/2");
            }
            Ok(Protocol::Http2) => Box::pin(self.http2(service, stream, line, &connection, end)).await,
            Err(error) => {
                tracing::trace!(target: LOG, peer = %peer.address, %error, "ended before a request");
            }
        }
    }

    async fn http1<S, I>(
        &self,
        service: S,
        stream: Stream<I>,
        line: Line,
        held: &Connection,
        end: &mut watch::Receiver<Shutdown>,
    ) where
        S: Service,
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = line.peer.address;
        // On the heap only if there is one: the library reserves its space with the connection, and most connections
        // are idle.
        let service = service_fn(move |request| Box::pin(answer(service.clone(), line.clone(), request)));
        let connection = self.http1.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let mut connection = pin!(connection);
        let result = tokio::select! {
            biased;
            result = connection.as_mut() => result,
            () = goes(end, held) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        // The rest is a tunnel.
        held.stay();
        if let Err(error) = result {
            tracing::debug!(target: LOG, %peer, %error, "connection broke");
        }
    }

    async fn http2<S, I>(
        &self,
        service: S,
        stream: Stream<I>,
        line: Line,
        held: &Connection,
        end: &mut watch::Receiver<Shutdown>,
    ) where
        S: Service,
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (peer, exchange) = (line.peer.address, Arc::clone(&line.exchange));
        // HTTP/2 streams are tasks and own what they need; on the heap until the response begins.
        let service = service_fn(move |request| Box::pin(answer(service.clone(), line.clone(), request)));
        let connection = self.http2.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let result = tokio::select! {
            biased;
            result = connection.as_mut() => result,
            () = until_shutdown(end, Shutdown::Soon) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            () = idle_or_end_requested(&exchange, self.options.idle_timeout, held) => {
                connection.as_mut().graceful_shutdown();
                // A client that has not finished its handshake gets no graceful shutdown.
                let rest = connection.as_mut();
                until_idle_again(rest, &exchange, self.options.head_timeout).await
            }
        };
        if let Err(error) = result {
            tracing::debug!(target: LOG, %peer, %error, "connection broke");
        }
    }
}

/// Resolves when no request has begun or run and no response was being sent for `limit`. It checks once per `limit`,
/// so it takes up to twice as long but costs requests nothing.
///
/// The library finishes a response before its client has received it; the byte count shows whether it is still being
/// sent.
async fn idle(exchange: &Exchange, limit: Duration) {
    let mut before = None;
    loop {
        let (begun, written) = (exchange.begun(), exchange.written());
        let is_still = |(begun_before, written_before)| {
            begun == begun_before && written - written_before <= CHATTER_BYTES
        };
        if before.is_some_and(is_still) && exchange.finished() == begun {
            return;
        }
        before = Some((begun, written));
        sleep(limit).await;
    }
}

/// Resolves when a connection is [idle](idle), or has to make room for another.
async fn idle_or_end_requested(exchange: &Exchange, limit: Duration, held: &Connection) {
    tokio::select! {
        () = idle(exchange, limit) => {}
        () = held.end_requested() => {}
    }
}

/// Resolves when shutdown begins, or the connection has to make room for another.
async fn goes(end: &mut watch::Receiver<Shutdown>, held: &Connection) {
    tokio::select! {
        () = until_shutdown(end, Shutdown::Soon) => {}
        () = held.end_requested() => {}
    }
}

/// Drives a connection that was asked to end, and drops it when nothing has run on it for `limit`.
async fn until_idle_again<C>(
    connection: Pin<&mut C>,
    exchange: &Exchange,
    limit: Duration,
) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>>,
{
    tokio::select! {
        biased;
        result = connection => result,
        () = idle(exchange, limit) => Ok(()),
    }
}

/// Resolves when the shutdown has come this far.
async fn until_shutdown(end: &mut watch::Receiver<Shutdown>, how: Shutdown) {
    // If the sender is gone, so is the socket: that is a shutdown too.
    let _ = end.wait_for(|end| *end >= how).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_connection_is_idle_if_only_pings_are_sent() {
        let exchange = Arc::new(Exchange::default());
        drop(exchange.begin());
        let going_out = async {
            for _ in 0..40 {
                exchange.wrote(2048);
                sleep(LOOK / 10).await;
            }
        };
        tokio::select! {
            biased;
            () = going_out => {}
            () = idle(&exchange, LOOK) => panic!("cut off in the middle of an answer"),
        }
        let pinging = async {
            loop {
                exchange.wrote(17);
                sleep(LOOK / 10).await;
            }
        };
        tokio::select! {
            () = pinging => {}
            () = idle(&exchange, LOOK) => {}
        }
    }
}
