//! Limits and timeouts for the upstream, with their defaults.

use super::tls::Tls;
use std::time::Duration;

/// How the upstream is reached, and how long it is waited for.
#[derive(Debug, Clone)]
pub struct Options {
    /// For a connection: name, every address of it, TLS, and a free place among `connections_max`. 5 s by default.
    pub connect_timeout: Duration,
    /// For the response, from the moment the request is handed to a connection. Of protected requests it covers head and
    /// body; of others, and of event streams, the head. 60 s by default.
    pub response_timeout: Duration,
    /// For how long an idle connection may still carry a protected request. Short, since a close that crosses the request
    /// leaves its outcome in doubt. 2 s by default.
    pub idle_time_max_protected: Duration,
    /// For how long an idle connection is kept for other requests. 15 s by default.
    pub idle_time_max: Duration,
    /// Every protected request on a connection of its own: then no close of an idle one can cross it. Off by default; it
    /// costs a handshake each.
    pub is_fresh_when_protected: bool,
    /// How many idle connections are kept. 256 by default.
    pub idle_max: usize,
    /// How many HTTP/1 requests may be under way at once; whatever comes on top waits for `connect_timeout`. A quarter of
    /// them is for protected requests alone. 1024 by default.
    pub connections_max: usize,
    /// How many bytes a response's head may have. 64 KiB by default.
    pub head_bytes_max: u32,
    /// Whom to believe over TLS. The system's authorities by default.
    pub tls: Tls,
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
            tls: Tls::default(),
        }
    }
}
