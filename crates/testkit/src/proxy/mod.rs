//! A network that fails on demand: a TCP proxy in front of any server.
//!
//! The proxy, and what a test can do to it while it runs. Every fault comes from a [`Plan`].
//!
//! [`faults`](crate::faults) does the same to the calls of a store, in memory. This one does it to bytes, so that a
//! driver's own handling of lost connections is tested too.

mod connection;
mod plan;
mod protocol;

pub use plan::{Fault, FaultRates, Plan, Request, Script, Seeded, Throttle};
pub use protocol::Protocol;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// What happens to existing connections when the server behind the proxy is [swapped](FaultProxy::swap).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They stay with their server.
    Keep,
    /// They stay open, and their next request goes to the new server, as with a pooler or an address that moves.
    /// Connections of [`Protocol::Postgres`] repeat their start-up messages on the new server.
    Follow,
    /// They are reset.
    Cut,
}

/// A proxy in front of a server, on its own port. When dropped, it ends and resets its connections.
///
/// Needs a tokio runtime with its I/O and timers on.
///
/// ```
/// # use semel_testkit::proxy::{Fault, FaultProxy, Protocol, Script};
/// # use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
/// # let address = server.local_addr().unwrap();
/// // The first request reaches the server, and its response never comes back.
/// let proxy = FaultProxy::start(address, Protocol::Opaque, Script::new([Fault::CutAfter])).await.unwrap();
/// # tokio::spawn(async move {
/// #     let (mut stream, _) = server.accept().await.unwrap();
/// #     let mut request = [0; 4];
/// #     stream.read_exact(&mut request).await.unwrap();
/// #     stream.write_all(b"done").await.unwrap();
/// # });
/// let mut client = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
/// client.write_all(b"work").await.unwrap();
/// assert!(client.read_u8().await.is_err());
/// # });
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// What the connections of a proxy share.
struct Shared {
    protocol: Protocol,
    plan: Mutex<Arc<dyn Plan>>,
    orders: watch::Sender<Orders>,
    opened: AtomicU64,
    open: AtomicU64,
    requests: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("orders", &*self.orders.borrow()).finish_non_exhaustive()
    }
}

/// Orders to connections. The counters show existing connections what is new.
#[derive(Debug, Clone, Copy)]
struct Orders {
    server: SocketAddr,
    follows: u64,
    cuts: u64,
}

impl FaultProxy {
    /// A proxy on 127.0.0.1 in front of `server`, where `plan` decides what happens to each request.
    pub async fn start(server: SocketAddr, protocol: Protocol, plan: impl Plan) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            protocol,
            plan: Mutex::new(Arc::new(plan)),
            orders: watch::Sender::new(Orders { server, follows: 0, cuts: 0 }),
            opened: AtomicU64::new(0),
            open: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on `plan` decides, on existing connections too.
    pub fn set_plan(&self, plan: impl Plan) {
        *self.shared.plan_slot() = Arc::new(plan);
    }

    /// Puts another server behind the proxy. New connections go there from now on.
    pub fn swap(&self, server: SocketAddr, existing: Existing) {
        self.shared.orders.send_modify(|orders| {
            orders.server = server;
            match existing {
                Existing::Keep => {}
                Existing::Follow => orders.follows += 1,
                Existing::Cut => orders.cuts += 1,
            }
        });
    }

    /// Resets every connection; new ones are accepted.
    pub fn cut(&self) {
        self.shared.orders.send_modify(|orders| orders.cuts += 1);
    }

    /// How many connections are open.
    pub fn connections(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// How many connections were accepted so far.
    pub fn connections_total(&self) -> u64 {
        self.shared.opened.load(Ordering::SeqCst)
    }

    /// How many requests passed so far, whatever happened to them.
    pub fn requests_total(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn plan_slot(&self) -> MutexGuard<'_, Arc<dyn Plan>> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to a request.
    fn fate(&self, connection: u64, number: u64, bytes: &[u8]) -> Fault {
        let total = self.requests.fetch_add(1, Ordering::SeqCst);
        let plan = Arc::clone(&self.plan_slot());
        plan.fate(&Request { connection, number, total, bytes })
    }
}

/// Connections run in this task, and end with it.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((client, _)) = accepted else { continue };
                let number = shared.opened.fetch_add(1, Ordering::SeqCst);
                shared.open.fetch_add(1, Ordering::SeqCst);
                let shared = Arc::clone(&shared);
                connections.spawn(async move {
                    let _open = Open(Arc::clone(&shared));
                    connection::run(client, number, &shared).await;
                });
            }
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Counts a connection as open while it exists.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}
