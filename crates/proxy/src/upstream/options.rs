//! Limits and timeouts for the upstream, with their defaults.

use semel_net::client::Authorities;
use std::time::Duration;

/// How the upstream is reached, and its timeouts.
#[derive(Debug, Clone)]
pub struct Options {
    /// For a connection: name resolution, all addresses, TLS, and a free slot among `connections_max`. 5 s by default.
    pub connect_timeout: Duration,
    /// For the response, from the moment the request is handed to a connection. Of protected requests it covers head and
    /// body; of others, and of event streams, the head. 60 s by default.
    pub response_timeout: Duration,
    /// How long a connection may have been idle to carry a protected request. Short, because a close that crosses the
    /// request leaves its outcome in doubt. 2 s by default.
    pub idle_time_max_protected: Duration,
    /// How long an idle connection is kept for other requests. 15 s by default.
    pub idle_time_max: Duration,
    /// A new connection for every protected request, so that no close of an idle one can cross it. Off by default; it
    /// costs a handshake each.
    pub is_fresh_when_protected: bool,
    /// How many idle connections are kept. 256 by default.
    pub idle_max: usize,
    /// How many HTTP/1 requests may run at once; others wait for `connect_timeout`. A quarter is reserved for
    /// protected requests. 1024 by default.
    pub connections_max: usize,
    /// How many bytes a response's head may have. 64 KiB by default.
    pub head_bytes_max: u32,
    /// The certificate authorities; the system's by default.
    pub authorities: Authorities,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_mins(1),
            idle_time_max_protected: Duration::from_secs(2),
            idle_time_max: Duration::from_secs(15),
            is_fresh_when_protected: false,
            idle_max: 256,
            connections_max: 512,
            head_bytes_max: 64 * 1024,
            authorities: Authorities::default(),
        }
    }
}
