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

/// After the system refused to hand over a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Connections without a sign of life are asked for one after this long, by TCP itself: tunnels have no other limit.
const PROBE_AFTER: Duration = Duration::from_mins(1);

/// What the system holds of a response beyond what is on its way to the client.
#[cfg(any(target_os = "linux", target_os = "android"))]
const UNSENT_BYTES: u32 = 16 * 1024;

/// How far the end has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shutdown {
    Open,
    /// Answer what runs, take nothing new.
    Soon,
    /// Let go.
    Now,
}

/// A socket that listens. Clients can connect from now on; they are served by [`serve`](Self::serve).
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
    /// Connections that were open when the end was asked for, and ended by themselves.
    pub ended: usize,
    /// Connections that were still open at the deadline, tunnels included.
    pub cut_off: usize,
}

impl Bound {
    /// Reads the TLS files, if any, and takes the address.
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

    /// Where it listens; with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it shows by TLS, and can be told to show instead; none where it speaks no TLS.
    pub fn credentials(&self) -> Option<Credentials> {
        self.tls.clone()
    }

    /// Serves until `stop` resolves. Then the socket is closed, running requests are answered, their connections closed, and
    /// at the end of [`Options::drain`] whatever is left is cut off.
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
        let places_max = options.connections_max.clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let (drain, slots) = (options.drain, Slots::new(places_max));
        let server = Arc::new(Server::new(options, tls));
        let (tell, end) = watch::channel(Shutdown::Open);
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
                    tracing::warn!(%error, "no connection can be accepted; retrying shortly");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(listener);
        let open = slots.taken();
        tell.send_replace(Shutdown::Soon);
        let is_drained = timeout(drain, slots.all_left()).await.is_ok();
        let cut_off = if is_drained { 0 } else { slots.taken() };
        tell.send_replace(Shutdown::Now);
        Drained { ended: open.saturating_sub(cut_off), cut_off }
    }
}

/// The next connection, once there is a place for it.
async fn accept(listener: &TcpListener, slots: &Slots) -> io::Result<(TcpStream, Peer, Slot)> {
    let (tcp, address) = listener.accept().await?;
    let slot = slots.take(address.ip()).await;
    // Answers are written whole; waiting to fill a packet would only delay them.
    tcp.set_nodelay(true)?;
    // What the client has not taken stays with us, where it is counted: the system would hold megabytes of it, and say that there
    // is room for more only when a third of these is gone.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket2::SockRef::from(&tcp).set_tcp_notsent_lowat(UNSENT_BYTES)?;
    let probing = socket2::TcpKeepalive::new().with_time(PROBE_AFTER);
    socket2::SockRef::from(&tcp).set_tcp_keepalive(&probing)?;
    let local = tcp.local_addr()?;
    Ok((tcp, Peer { address, local, is_tls: false }, slot))
}

/// A connection that broke before it was taken is no reason to wait.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected
    )
}
