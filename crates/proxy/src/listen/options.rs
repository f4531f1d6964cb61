//! Where to listen, and the limits. No limit can be switched off: a client that is never timed out would hold its slot
//! for ever.

use super::proxies::Proxies;
use crate::wire::{ClientTimeouts, Limits, Rate, RefusalObserver, Refusals};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// Settings of one listening socket.
#[derive(Debug, Clone)]
pub struct Options {
    /// The address; port 0 takes any free one.
    pub address: SocketAddr,
    /// TLS, or none.
    pub tls: Option<Tls>,
    /// Which client certificates to ask for; none by default. Needs TLS.
    pub clients: Option<Clients>,
    /// The limit for a TLS handshake.
    pub handshake_timeout: Duration,
    /// The limit for a request's line and headers, from their first byte; on a new connection from its start.
    pub head_timeout: Duration,
    /// The limit for each next byte of a request's body, while the service waits for one.
    pub body_timeout: Duration,
    /// The limit for the next request on a kept-alive connection.
    pub idle_timeout: Duration,
    /// The limit for a client to read any byte that is sent to it.
    pub write_timeout: Duration,
    /// The minimum rate at which a client has to send a request's body (until the response begins, or to its end if
    /// its length is known) and to read the response. Only time spent waiting for the client counts.
    pub rate_min: Rate,
    /// The maximum bytes of a request's line and headers.
    pub head_bytes_max: usize,
    /// The maximum header lines of a request. HTTP/2 counts only bytes.
    pub headers_max: usize,
    /// The maximum of connections. For one more, an idle connection of the largest holder is closed; if none is idle,
    /// it waits.
    pub connections_max: usize,
    /// The maximum of running requests on all connections. For one more, a request of the largest holder whose body is
    /// still being read is ended; if there is none, it is refused. The last eighth is for clients that have less than
    /// a 64th.
    pub requests_max: usize,
    /// The maximum of requests on one HTTP/2 connection.
    pub streams_max: u32,
    /// The proxies that are trusted to name their clients when somebody has to give way.
    pub proxies: Proxies,
    /// The prefix of the path at which problems are explained; see [`semel_http::Layer::publishing`].
    pub prefix: Prefix,
    /// Learns of the requests that are refused here, before the service gets them or while it waits for their bodies. Requests
    /// that the service answers with an error are its own to count, also if the client gets a refusal instead.
    pub refusals: RefusalObserver,
    /// How long running requests may take after shutdown begins.
    pub drain: Duration,
}

/// The prefix of the path at which problems are explained. Clones share it; a connection uses the value at its start.
#[derive(Debug, Clone)]
pub struct Prefix(Arc<RwLock<Arc<str>>>);

impl Default for Prefix {
    /// The empty prefix.
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Arc::from(""))))
    }
}

impl Prefix {
    /// Sets it to `prefix`.
    pub fn replace(&self, prefix: &str) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = prefix.into();
    }

    fn get(&self) -> Arc<str> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file with the certificate first, then its chain.
    pub certificates: PathBuf,
    /// A PEM file with the private key of the first certificate.
    pub key: PathBuf,
}

/// Which client certificates to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// A PEM file with the client certificate authorities. Each of them can name any client.
    pub authorities: PathBuf,
    /// Whether a client without a certificate is refused. One with an invalid certificate always is.
    pub is_required: bool,
}

impl Default for Options {
    fn default() -> Self {
        let Limits { head_bytes_max, headers_max } = Limits::default();
        Self {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8080)),
            tls: None,
            clients: None,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_mins(3),
            rate_min: Rate::default(),
            head_bytes_max,
            headers_max,
            connections_max: 4_096,
            requests_max: 1_024,
            streams_max: 128,
            proxies: Proxies::default(),
            prefix: Prefix::default(),
            refusals: RefusalObserver::default(),
            drain: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// The options of a bound socket after the files of `new` were read: with new TLS files, if it keeps using TLS.
    /// The rest is fixed when it is bound.
    #[must_use]
    pub fn renewed(&self, new: &Self) -> Self {
        let mut renewed = self.clone();
        if self.tls.is_some() && new.tls.is_some() {
            (renewed.tls, renewed.clients) = (new.tls.clone(), new.clients.clone());
        }
        renewed
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { head_bytes_max: self.head_bytes_max, headers_max: self.headers_max }
    }

    pub(super) fn refusals(&self) -> Refusals {
        Refusals { prefix: self.prefix.get(), observer: self.refusals.clone() }
    }

    pub(super) fn timeouts(&self) -> ClientTimeouts {
        ClientTimeouts {
            head: self.head_timeout,
            idle: self.idle_timeout,
            write: self.write_timeout,
            rate: self.rate_min,
        }
    }
}
