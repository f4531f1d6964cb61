//! Slots for connections, and which connection is closed if there is no slot for a new one. A connection on which a
//! request is running is never closed for that.

use crate::wire::Exchange;
use semel_http::fairness::Holdings;
use semel_text::address::network;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// The pause between two searches for an idle connection, while all are busy.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The slots for connections on one socket.
pub(super) struct Slots {
    free: Arc<Semaphore>,
    open: Arc<Mutex<Open>>,
    total: usize,
}

#[derive(Default)]
struct Open {
    connections: HashMap<u64, Arc<Connection>>,
    opened: u64,
    http2_max: usize,
}

/// One slot in this many may be an HTTP/2 connection: unread data of its client needs far more memory.
const HTTP2_SHARE: usize = 8;

/// A connection with a slot.
pub(super) struct Connection {
    /// Where it came from.
    network: IpAddr,
    exchange: Arc<Exchange>,
    /// It can be asked to end once, and no more after it has switched protocols.
    may_go: AtomicBool,
    is_http2: AtomicBool,
    go: Notify,
}

/// A connection's view of the other open connections.
pub(super) struct OpenConnections(Arc<Mutex<Open>>);

/// A connection's slot, until it is dropped.
pub(super) struct Slot {
    connection: Arc<Connection>,
    number: u64,
    open: Arc<Mutex<Open>>,
    _permit: OwnedSemaphorePermit,
}

impl Slots {
    pub(super) fn new(total: usize) -> Self {
        let open = Open { http2_max: total.div_ceil(HTTP2_SHARE), ..Open::default() };
        Self { free: Arc::new(Semaphore::new(total)), open: Arc::new(Mutex::new(open)), total }
    }

    /// A slot for a connection from `address`, as soon as there is one. If all are taken, an idle connection is
    /// closed: the oldest one of the network that has the most.
    pub(super) async fn take(&self, address: IpAddr) -> Slot {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            let waiting = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(permit)) = timeout(LOOK_AGAIN, waiting).await {
                break permit;
            }
        };
        let connection = Arc::new(Connection {
            network: network(address),
            exchange: Arc::default(),
            may_go: AtomicBool::new(true),
            is_http2: AtomicBool::new(false),
            go: Notify::new(),
        });
        let mut open = lock(&self.open);
        let number = open.opened;
        open.opened += 1;
        open.connections.insert(number, Arc::clone(&connection));
        drop(open);
        Slot { connection, number, open: Arc::clone(&self.open), _permit: permit }
    }

    fn make_room(&self) {
        lock(&self.open).end_one(|_| true);
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.total - self.free.available_permits()
    }

    /// Waits until none is taken.
    pub(super) async fn all_left(&self) {
        let all = u32::try_from(self.total).unwrap_or(u32::MAX);
        let _ = self.free.acquire_many(all).await;
    }
}

impl Open {
    /// Closes an idle connection among those that are `meant`: the oldest of the network with the most slots. Returns
    /// whether there was one.
    fn end_one(&self, meant: impl Fn(&Connection) -> bool) -> bool {
        let mut held = Holdings::default();
        for connection in self.connections.values() {
            held.add(connection.network, 1);
        }
        let idle = self.connections.iter().filter(|(_, connection)| connection.may_go() && meant(connection));
        let goes = idle
            .max_by_key(|(number, connection)| (held.of(&connection.network), std::cmp::Reverse(**number)));
        if let Some((_, connection)) = goes {
            connection.may_go.store(false, Ordering::Release);
            connection.go.notify_one();
        }
        goes.is_some()
    }
}

impl OpenConnections {
    /// `connection` uses HTTP/2. If too many do, an idle one of them is closed; `false` if none is idle.
    pub(super) fn admit_http2(&self, connection: &Connection) -> bool {
        let open = lock(&self.0);
        let is_http2 = |connection: &Connection| connection.is_http2.load(Ordering::Relaxed);
        let count = open.connections.values().filter(|connection| is_http2(connection)).count();
        let is_admitted = count < open.http2_max || open.end_one(is_http2);
        connection.is_http2.store(is_admitted, Ordering::Relaxed);
        is_admitted
    }
}

impl Connection {
    /// Its requests and responses.
    pub(super) fn exchange(&self) -> &Arc<Exchange> {
        &self.exchange
    }

    /// Resolves when it has to make room for another.
    pub(super) async fn end_requested(&self) {
        self.go.notified().await;
    }

    /// What follows on it is not HTTP requests.
    pub(super) fn stay(&self) {
        self.may_go.store(false, Ordering::Release);
    }

    fn may_go(&self) -> bool {
        self.may_go.load(Ordering::Acquire) && self.exchange.begun() == self.exchange.finished()
    }
}

impl Slot {
    pub(super) fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }

    /// The connections that it shares the slots with.
    pub(super) fn others(&self) -> OpenConnections {
        OpenConnections(Arc::clone(&self.open))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.open).connections.remove(&self.number);
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    // Every change is complete, so a panic elsewhere leaves it usable.
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_of_the_largest_holder_is_closed() {
        let slots = Slots::new(4);
        let one = slots.take(address("192.0.2.1")).await;
        let busy = slots.take(address("2001:db8::1")).await;
        let second = slots.take(address("2001:db8::2")).await;
        let third = slots.take(address("2001:db8::3")).await;
        let running = busy.connection().exchange().begin();
        let wanted = slots.take(address("192.0.2.9"));
        let goes = async {
            second.connection().end_requested().await;
            drop(second);
        };
        let (_new, ()) = tokio::join!(wanted, goes);
        // Next: of two with the same number, one is idle, and the other was opened earlier.
        drop(running);
        let wanted = slots.take(address("192.0.2.9"));
        let goes = async {
            busy.connection().end_requested().await;
            drop(busy);
        };
        let (_new, ()) = tokio::join!(wanted, goes);
        assert!(one.connection().may_go() && third.connection().may_go());
        assert_eq!(slots.taken(), 4);
    }

    #[tokio::test]
    async fn http2_has_an_eighth_of_the_slots() {
        let slots = Slots::new(16);
        let first = slots.take(address("192.0.2.1")).await;
        let second = slots.take(address("192.0.2.2")).await;
        let third = slots.take(address("192.0.2.3")).await;
        let others = first.others();
        assert!(others.admit_http2(&first.connection()) && others.admit_http2(&second.connection()));
        let running = [first.connection().exchange().begin(), second.connection().exchange().begin()];
        assert!(!others.admit_http2(&third.connection()), "both are busy");
        drop(running);
        assert!(others.admit_http2(&third.connection()));
        first.connection().end_requested().await;
        assert!(second.connection().may_go());
    }
}
