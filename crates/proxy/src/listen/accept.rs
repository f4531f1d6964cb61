//! Binds the listening socket and accepts connections, up to the limit. When the system is out of file descriptors, it
//! waits instead of spinning.

use super::answer::Peer;
use super::body::Body;
use super::connection::Server;
use super::error::Error;
use super::options::Options;
use super::slots::{Slot, Slots};
use super::tls::{Credentials, LoadedTls};
use http::{Request, Response};
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::listen::accept";

/// The pause after the system failed to accept a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Idle connections are probed by TCP keep-alive after this time: tunnels have no other limit.
const PROBE_AFTER: Duration = Duration::from_mins(1);

/// How much of a response the system buffers beyond what is in flight to the client.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 16 * 1024;

/// How far the shutdown has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shutdown {
    Open,
    /// Finish running requests, accept nothing new.
    Soon,
    /// Close everything.
    Now,
}

/// A bound socket. Clients can connect; [`serve`](Self::serve) serves them.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<Credentials>,
    options: Options,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were open when shutdown began, and ended by themselves.
    pub ended: usize,
    /// Connections that were still open at the deadline, tunnels included.
    pub cut_off: usize,
}

impl Bound {
    /// Reads the TLS files, if any, and binds the address.
    pub async fn bind(options: &Options) -> Result<Self, Error> {
        let clients = options.clients.as_ref();
        let tls = options.tls.as_ref().map(|tls| LoadedTls::read(tls, clients)).transpose()?;
        if clients.is_some() && tls.is_none() {
            return Err(Error::ClientsWithoutTls);
        }
        let address = options.address;
        let listener = TcpListener::bind(address).await.map_err(|error| Error::Address(address, error))?;
        let address = listener.local_addr().map_err(|error| Error::Address(address, error))?;
        Ok(Self { listener, address, tls: tls.map(Credentials::new), options: options.clone() })
    }

    /// Its address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its TLS credentials, which can be replaced; none without TLS.
    pub fn credentials(&self) -> Option<Credentials> {
        self.tls.clone()
    }

    /// Serves until `stop` resolves. Then it closes the socket, finishes running requests, closes their connections,
    /// and after [`Options::drain`] cuts off the rest.
    ///
    /// A service that panics breaks its own connection (on HTTP/2, its stream) and no other.
    pub async fn serve<S>(self, service: S, stop: impl Future<Output = ()>) -> Drained
    where
        S: tower_service::Service<Request<Body>, Response = Response<semel_http::Body>, Error = Infallible>
            + Clone
            + Send
            + 'static,
        S::Future: Send,
    {
        let Self { listener, tls, options, .. } = self;
        let slots_max = options.connections_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let (drain, slots) = (options.drain, Slots::new(slots_max));
        let server = Arc::new(Server::new(options, tls));
        let (shutdown, end) = watch::channel(Shutdown::Open);
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.as_mut() => break,
                accepted = accept(&listener, &slots) => accepted,
            };
            match accepted {
                Ok((tcp, peer, slot)) => {
                    let (server, service) = (Arc::clone(&server), service.clone());
                    tokio::spawn(server.connection(service, tcp, peer, slot, end.clone()));
                }
                Err(error) if is_the_clients(&error) => {}
                Err(error) => {
                    tracing::warn!(target: LOG, %error, "no connection can be accepted; retrying shortly");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(listener);
        let open = slots.taken();
        shutdown.send_replace(Shutdown::Soon);
        let is_drained = timeout(drain, slots.all_left()).await.is_ok();
        let cut_off = if is_drained { 0 } else { slots.taken() };
        shutdown.send_replace(Shutdown::Now);
        Drained { ended: open.saturating_sub(cut_off), cut_off }
    }
}

/// The next connection, as soon as there is a slot for it.
async fn accept(listener: &TcpListener, slots: &Slots) -> io::Result<(TcpStream, Peer, Slot)> {
    let (tcp, address) = listener.accept().await?;
    let slot = slots.take(address.ip()).await;
    // Responses are written in full; waiting to fill a packet would only delay them.
    tcp.set_nodelay(true)?;
    // Bytes that the client has not read stay in this process, where they are counted. The system would buffer
    // megabytes, and report room only when a third of it is free.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(&tcp).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    let probing = socket2::TcpKeepalive::new().with_time(PROBE_AFTER);
    socket2::SockRef::from(&tcp).set_tcp_keepalive(&probing)?;
    let local = tcp.local_addr()?;
    Ok((tcp, Peer { address, local, is_tls: false }, slot))
}

/// A connection that broke before it was accepted is no reason to wait.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}
