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

/// HTTP/2 peers that answer no ping for this long, asked every so often, are gone.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Streams that a client opened and reset at once, before we looked at them; and those that we reset for its errors. Above
/// these the connection is closed: nothing ordinary comes near.
const RESET_STREAMS_MAX: usize = 100;
const ERROR_STREAMS_MAX: usize = 256;
/// What is written between two looks at a connection on which nothing is being answered: pings, and answers to pings.
const CHATTER_BYTES: u64 = 1024;
/// What heads of more than a few KiB take together: those that are still coming, and those of requests that run.
const HEADS_BYTES: usize = 32 << 20;
/// What a client of HTTP/2 may send of its bodies before anybody reads them: in one stream, and in all of a connection.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 128 * 1024;
/// What waits for a client of HTTP/2 in one stream, beyond the piece that is being written.
const STREAM_SEND_BYTES: usize = 32 * 1024;

/// What all connections of one socket share.
pub(super) struct Server {
    options: Options,
    tls: Option<Credentials>,
    http1: http1::Builder,
    http2: http2::Builder<Streams>,
    /// For the requests of all connections,
    requests: Arc<Requests>,
    /// and their heads.
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
        // Heads are timed by the stream below, which knows the idle from the slow.
        http1.timer(TokioTimer::new()).header_read_timeout(None);
        // Also what waits for a client that does not read; beyond a head there is room for a piece of the body.
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
        // On the heap, as all that not every connection needs: there are thousands of them.
        match Box::pin(timeout(self.options.handshake_timeout, tls.acceptor().accept(tcp))).await {
            Ok(Ok(stream)) => {
                let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
                let certificate = shown.map(|shown| ClientCertificate(shown.as_ref().into()));
                Box::pin(self.scanned(service, stream, (peer, certificate), slot, end)).await;
            }
            Ok(Err(error)) => tracing::debug!(peer = %peer.address, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(peer = %peer.address, "TLS handshake took too long"),
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
        let (scanner, patience) = (Scanner::new(self.options.limits()), self.options.patience());
        let (prefix, head_place) = (self.options.prefix.get(), self.heads.slot());
        let mut stream = Stream::new(
            io,
            scanner,
            Arc::clone(&exchange),
            patience,
            Arc::clone(&prefix),
            (slot, head_place),
        );
        let protocol = tokio::select! {
            biased;
            protocol = stream.protocol() => protocol,
            () = connection.told_to_go() => Err(std::io::ErrorKind::Interrupted.into()),
            () = until_shutdown(end, Shutdown::Soon) => Err(std::io::ErrorKind::Interrupted.into()),
        };
        let (requests, heads) = (Arc::clone(&self.requests), self.heads.clone());
        let proxies = self.options.proxies.clone();
        let (body_timeout, rate_min) = (self.options.body_timeout, self.options.rate_min);
        let line =
            Line { peer, certificate, exchange, requests, heads, proxies, prefix, body_timeout, rate_min };
        match protocol {
            // On the heap from here on: before, a connection takes far less.
            Ok(Protocol::Http1) => Box::pin(self.http1(service, stream, line, &connection, end)).await,
            Ok(Protocol::Http2) if !others.admit_http2(&connection) => {
                tracing::debug!(peer = %peer.address, "too many connections use HTTP/2");
            }
            Ok(Protocol::Http2) => Box::pin(self.http2(service, stream, line, &connection, end)).await,
            Err(error) => tracing::trace!(peer = %peer.address, %error, "ended before a request"),
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
        // On the heap, while there is one: the library makes room for it with the connection, and most connections are idle.
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
        // Whatever is left of it is a tunnel.
        held.stay();
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "connection broke");
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
        // The streams of HTTP/2 are tasks of their own, and take what they need with them. On the heap, until the response has begun.
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
            () = idle_or_told(&exchange, self.options.idle_timeout, held) => {
                connection.as_mut().graceful_shutdown();
                // A client that has not even finished its handshake hears nothing of a friendly end.
                let rest = connection.as_mut();
                until_idle_again(rest, &exchange, self.options.head_timeout).await
            }
        };
        if let Err(error) = result {
            tracing::debug!(%peer, %error, "connection broke");
        }
    }
}

/// Resolves once no request has begun, none has run and no answer was on its way for `limit`, looked at that often: it takes
/// up to twice as long, and costs a request nothing.
///
/// The library takes the end of an answer before its client does: whether that still goes out, the bytes tell.
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

/// Resolves once a connection is [idle](idle), or is to make room for another.
async fn idle_or_told(exchange: &Exchange, limit: Duration, held: &Connection) {
    tokio::select! {
        () = idle(exchange, limit) => {}
        () = held.told_to_go() => {}
    }
}

/// Resolves once the end has come, or the connection is to make room for another.
async fn goes(end: &mut watch::Receiver<Shutdown>, held: &Connection) {
    tokio::select! {
        () = until_shutdown(end, Shutdown::Soon) => {}
        () = held.told_to_go() => {}
    }
}

/// Drives a connection that was told to end, and gives it up once nothing has run on it for `limit`.
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

/// Resolves once the end has come this far.
async fn until_shutdown(end: &mut watch::Receiver<Shutdown>, how: Shutdown) {
    // Whoever could tell is gone with the socket: that is the end too.
    let _ = end.wait_for(|end| *end >= how).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_connection_is_not_idle_while_answers_go_out_and_idle_once_only_pings_do() {
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
