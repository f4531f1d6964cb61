//! Where to listen, and the limits. No limit can be switched off: a client that is never timed out would hold its slot
//! for ever.

use super::proxies::Proxies;
use crate::wire::{Limits, Patience, Rate};
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
    /// Which certificates clients are asked for. None otherwise. Needs TLS.
    pub clients: Option<Clients>,
    /// For a TLS handshake.
    pub handshake_timeout: Duration,
    /// For a request's line and headers, from their first byte on; on a new connection from its beginning.
    pub head_timeout: Duration,
    /// For any next byte of a request's body, while the service waits for one.
    pub body_timeout: Duration,
    /// For the next request on a connection that is kept alive.
    pub idle_timeout: Duration,
    /// For a client to take any byte of what is sent to it.
    pub write_timeout: Duration,
    /// How fast a client has to send a request's body, until the response has begun or, where the body says its length, to its
    /// end; and to take the response. Only waiting for it counts.
    pub rate_min: Rate,
    /// Bytes of a request's line and headers.
    pub head_bytes_max: usize,
    /// Header lines of a request. HTTP/2 counts bytes only.
    pub headers_max: usize,
    /// Connections at a time. For one more, an idle one goes, of whoever has most; where none is idle it waits.
    pub connections_max: usize,
    /// Requests at a time, of all connections together. For one more, one goes whose body is still being read, of whoever has
    /// most; where there is none it is refused. The last eighth is for clients that have less than a 64th.
    pub requests_max: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub streams_max: u32,
    /// The proxies whose word about their clients counts when somebody has to give way.
    pub proxies: Proxies,
    /// What stands before the path at which problems are explained; see [`semel_http::Layer::publishing`].
    pub prefix: Prefix,
    /// How long running requests may take to end once the end was asked for.
    pub drain: Duration,
}

/// What stands before the path at which problems are explained. Clones share it: connections go by what it is when they begin.
#[derive(Debug, Clone)]
pub struct Prefix(Arc<RwLock<Arc<str>>>);

impl Default for Prefix {
    /// Nothing.
    fn default() -> Self {
        Self(Arc::new(RwLock::new(Arc::from(""))))
    }
}

impl Prefix {
    /// Has it be `prefix` from now on.
    pub fn replace(&self, prefix: &str) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = prefix.into();
    }

    pub(super) fn get(&self) -> Arc<str> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Where a certificate and its key are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file with the certificate first and those that vouch for it after.
    pub certificates: PathBuf,
    /// A PEM file with the private key of the first certificate.
    pub key: PathBuf,
}

/// Which certificates clients are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clients {
    /// A PEM file with the certificates of the authorities that vouch for clients. Each of them may name any client.
    pub authorities: PathBuf,
    /// Whether a client without a certificate is turned away. One with a bad certificate is in any case.
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
            drain: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// What a socket that is bound by these goes by once the files of `new` were read: those of TLS, where it speaks TLS and is
    /// to go on with it. The rest is settled when it is bound.
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

    pub(super) fn patience(&self) -> Patience {
        Patience {
            head: self.head_timeout,
            idle: self.idle_timeout,
            write: self.write_timeout,
            rate: self.rate_min,
        }
    }
}
