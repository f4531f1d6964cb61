//! Idle connections, and which of them carries the next request. A protected request uses only a connection that was
//! idle for a short time and was checked just before.

use super::h1;
use super::h2;
use super::options::Options;
use super::slots::Slot;
use http::{HeaderMap, Response};
use semel::{Clock, SystemClock};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often idle connections are closed.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How long a connection may take to finish an exchange after the response's end.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// How much earlier than announced an idle connection counts as closed.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);

/// Idle connections, and HTTP/2 connections that can carry more requests.
#[derive(Debug)]
pub(super) struct Pool {
    kept: Mutex<Connections>,
    idle_max: usize,
    idle_time_max: Duration,
    idle_time_max_protected: Duration,
}

#[derive(Debug, Default)]
struct Connections {
    /// The most recently used one is at the back.
    idle: VecDeque<Idle>,
    shared: Vec<Arc<h2::Connection>>,
    is_swept: bool,
}

#[derive(Debug)]
struct Idle {
    connection: h1::Connection,
    since: Duration,
    until: Duration,
}

impl Pool {
    pub(super) fn new(options: &Options) -> Arc<Self> {
        Arc::new(Self {
            kept: Mutex::default(),
            idle_max: options.idle_max,
            idle_time_max: options.idle_time_max,
            idle_time_max_protected: options.idle_time_max_protected.min(options.idle_time_max),
        })
    }

    /// The most recently used connection, if it can be reused.
    pub(super) fn take(&self, is_protected: bool) -> Option<h1::Connection> {
        let now = SystemClock.uptime();
        loop {
            let idle = {
                let mut kept = self.kept();
                let last = kept.idle.back()?;
                // The others are older still.
                if is_protected && last.since + self.idle_time_max_protected <= now {
                    return None;
                }
                kept.idle.pop_back()?
            };
            if now < idle.until && idle.connection.is_live() {
                return Some(idle.connection);
            }
        }
    }

    /// A slot on a connection that carries several requests.
    pub(super) fn lease(&self, is_protected: bool) -> Option<h2::Lease> {
        let now = SystemClock.uptime();
        let limit = if is_protected { self.idle_time_max_protected } else { self.idle_time_max };
        let mut kept = self.kept();
        kept.shared.retain(|connection| connection.is_live());
        kept.shared.iter().find_map(|connection| connection.lease(now, limit))
    }

    /// Adds an HTTP/2 connection, and returns a slot on it.
    pub(super) fn share(self: &Arc<Self>, connection: h2::Connection) -> h2::Lease {
        let connection = Arc::new(connection);
        let lease = h2::Lease::first(&connection);
        let mut kept = self.kept();
        kept.shared.push(connection);
        self.sweep(&mut kept);
        lease
    }

    fn put(self: &Arc<Self>, connection: h1::Connection, announced: Option<Duration>) {
        let limit = announced.map_or(self.idle_time_max, |limit| limit.min(self.idle_time_max));
        if limit.is_zero() || connection.is_closed() {
            return;
        }
        let since = SystemClock.uptime();
        let mut kept = self.kept();
        kept.idle.push_back(Idle { connection, since, until: since + limit });
        if kept.idle.len() > self.idle_max {
            kept.idle.pop_front();
        }
        self.sweep(&mut kept);
    }

    /// Starts the task that closes idle connections.
    fn sweep(self: &Arc<Self>, kept: &mut Connections) {
        if std::mem::replace(&mut kept.is_swept, true) {
            return;
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(pool) = pool.upgrade() else { return };
                let now = SystemClock.uptime();
                let mut kept = pool.kept();
                kept.idle.retain(|idle| now < idle.until && !idle.connection.is_closed());
                kept.shared.retain(|shared| shared.is_live() && !shared.is_idle(now, pool.idle_time_max));
                if kept.idle.is_empty() && kept.shared.is_empty() {
                    kept.is_swept = false;
                    return;
                }
            }
        });
    }

    fn kept(&self) -> MutexGuard<'_, Connections> {
        // No change can panic half-way.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that carries a request. If dropped before the response's end, it is closed at once, because what
/// follows on it belongs to nobody.
pub(super) struct PooledConnection {
    connection: Option<h1::Connection>,
    pool: Arc<Pool>,
    announced: Option<Duration>,
    _slot: Slot,
}

impl PooledConnection {
    pub(super) fn new(connection: h1::Connection, pool: &Arc<Pool>, slot: Slot) -> Self {
        Self { connection: Some(connection), pool: Arc::clone(pool), announced: None, _slot: slot }
    }

    pub(super) fn connection(&mut self) -> &mut h1::Connection {
        self.connection.as_mut().expect("it is taken out by those that consume the loan")
    }

    /// What the response's head says about the connection.
    pub(super) fn note_keep_alive<B>(&mut self, response: &Response<B>) {
        self.announced = announced(response.headers());
    }

    /// The response has come to its end.
    pub(super) fn give_back(mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        connection.end();
        let (pool, announced) = (Arc::clone(&self.pool), self.announced);
        if connection.is_ready() {
            pool.put(connection, announced);
        } else if !connection.is_closed() {
            // Its driver is not done, or the request's body is not, which the upstream did not need in full.
            tokio::spawn(async move {
                match tokio::time::timeout(SETTLE_MAX, connection.ready()).await {
                    Ok(Ok(())) => pool.put(connection, announced),
                    _ => connection.abort(),
                }
            });
        }
    }

    /// Somebody else owns the connection from now on.
    pub(super) fn let_go(mut self) {
        if let Some(connection) = self.connection.take() {
            connection.end();
        }
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.abort();
        }
    }
}

/// How long the upstream says it keeps an idle connection, minus a margin.
fn announced(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all("keep-alive").iter().filter_map(|line| line.to_str().ok());
    let seconds = lines.flat_map(|line| line.split(',')).find_map(|field| {
        let (name, value) = field.split_once('=')?;
        name.trim().eq_ignore_ascii_case("timeout").then(|| value.trim().parse().ok())?
    })?;
    let announced = Duration::from_secs(seconds);
    Some(announced.saturating_sub(KEEP_ALIVE_MARGIN).max(announced / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announced_idle_time_is_kept_with_a_margin() {
        let limit = |line: &'static str| {
            announced(
                &[(http::header::HeaderName::from_static("keep-alive"), line.parse().expect("a value"))]
                    .into_iter()
                    .collect(),
            )
        };
        assert_eq!(limit("timeout=5"), Some(Duration::from_secs(4)));
        assert_eq!(limit("max=100, Timeout = 5"), Some(Duration::from_secs(4)));
        assert_eq!(limit("timeout=1"), Some(Duration::from_millis(500)));
        assert_eq!(limit("timeout=0"), Some(Duration::ZERO));
        assert_eq!(limit("max=100"), None);
        assert_eq!(limit("timeout=soon"), None);
    }
}
