//! The running requests of all connections by client, and which one is ended if there are too many. A request is never
//! ended after a part of it was handed on.

use crate::wire::HeadSlot;
use semel_http::fairness;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The requests of all connections of one socket.
#[derive(Debug)]
pub(super) struct Requests {
    running: Mutex<Running>,
    total: usize,
}

#[derive(Debug, Default)]
struct Running {
    clients: HashMap<IpAddr, Client>,
    /// Clients with requests that are being read, by their number of requests of any kind, so that finding the largest
    /// takes the same time however many there are.
    with_unread: BTreeSet<(usize, IpAddr)>,
    count: usize,
    begun: u64,
}

#[derive(Debug, Default)]
struct Client {
    /// All of its requests.
    count: usize,
    unread: BTreeMap<u64, Arc<Request>>,
}

/// One running request.
#[derive(Debug)]
struct Request {
    client: IpAddr,
    number: u64,
    /// Changed only under the common lock.
    state: AtomicU8,
    go: Notify,
}

/// Its body is being read, and nothing was forwarded.
const UNREAD: u8 = 0;
/// It runs until it ends.
const STAYS: u8 = 1;
/// It was ended.
const GOES: u8 = 2;

/// A request's slot, until its last clone is dropped. It is an extension of each request; the code that runs a request
/// keeps it until the request ends, even if the client is gone.
#[derive(Debug, Clone)]
pub struct Slot(Arc<HeldSlot>);

#[derive(Debug)]
struct HeldSlot {
    request: Arc<Request>,
    requests: Arc<Requests>,
    arrival: Arrival,
    _head: HeadSlot,
}

/// How much of a request's body had arrived when it took its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// All of it, or it has none.
    Whole,
    /// Not all of it, or not known.
    Partial,
}

/// There is no slot for another request of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Requests {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), total: total.max(1) })
    }

    /// A slot for a request of `client`. If there is none, a request is ended whose body is still being read: the
    /// oldest one of the client that has the most, and more than this one.
    pub(super) fn take(
        self: &Arc<Self>,
        client: IpAddr,
        arrival: Arrival,
        head: HeadSlot,
    ) -> Result<Slot, Full> {
        let mut running = self.lock();
        let client_count = running.clients.get(&client).map_or(0, |client| client.count);
        let has_few = fairness::has_few(client_count, self.total);
        let reserved = if has_few { 0 } else { fairness::reserved(self.total) };
        if running.count + reserved >= self.total {
            running.end_one(client_count)?;
        }
        let state = AtomicU8::new(if arrival == Arrival::Whole { STAYS } else { UNREAD });
        let request = Arc::new(Request { client, number: running.begun, state, go: Notify::new() });
        running.add(&request);
        drop(running);
        Ok(Slot(Arc::new(HeldSlot { request, requests: Arc::clone(self), arrival, _head: head })))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // Every change is complete, so a panic elsewhere leaves it usable.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    fn add(&mut self, request: &Arc<Request>) {
        self.begun += 1;
        self.count += 1;
        self.change(request.client, |client| {
            client.count += 1;
            if request.is(UNREAD) {
                client.unread.insert(request.number, Arc::clone(request));
            }
        });
    }

    /// Ends a request of a client that has more than `client_count` + 1.
    fn end_one(&mut self, client_count: usize) -> Result<(), Full> {
        let (count, client) = *self.with_unread.last().ok_or(Full)?;
        if count <= client_count + 1 {
            return Err(Full);
        }
        let mut first = None;
        self.change(client, |client| {
            first = client.unread.pop_first().map(|(_, request)| request);
            client.count -= usize::from(first.is_some());
        });
        let request = first.ok_or(Full)?;
        self.count -= 1;
        request.state.store(GOES, Ordering::Release);
        request.go.notify_one();
        Ok(())
    }

    /// Whether it can no longer be ended.
    fn stay(&mut self, request: &Request) -> bool {
        if request.is(UNREAD) {
            request.state.store(STAYS, Ordering::Release);
            self.change(request.client, |client| {
                client.unread.remove(&request.number);
            });
        }
        request.is(STAYS)
    }

    /// It has ended. One that was ended to make room is no longer counted.
    fn remove(&mut self, request: &Request) {
        if !request.is(GOES) {
            self.count -= 1;
            self.change(request.client, |client| {
                client.count -= 1;
                client.unread.remove(&request.number);
            });
        }
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Client)) {
        let client = self.clients.entry(address).or_default();
        let before = client.rank(address);
        change(client);
        let after = client.rank(address);
        if client.count == 0 {
            self.clients.remove(&address);
        }
        if before != after {
            before.map(|rank| self.with_unread.remove(&rank));
            after.map(|rank| self.with_unread.insert(rank));
        }
    }
}

impl Client {
    /// Its position among clients with requests that are being read.
    fn rank(&self, address: IpAddr) -> Option<(usize, IpAddr)> {
        (!self.unread.is_empty()).then_some((self.count, address))
    }
}

impl Request {
    fn is(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) == state
    }
}

impl Slot {
    /// Who it belongs to.
    pub fn client(&self) -> IpAddr {
        self.0.request.client
    }

    /// Whether its body is complete.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.arrival == Arrival::Whole
    }

    /// It is about to be forwarded, or its body was read, so it can no longer be ended. `false` if it already was.
    #[must_use]
    pub(crate) fn stay(&self) -> bool {
        let request = &self.0.request;
        request.is(STAYS) || self.0.requests.lock().stay(request)
    }

    /// Resolves when it has to make room for another.
    pub(super) async fn end_requested(&self) {
        self.0.request.go.notified().await;
    }
}

impl Drop for HeldSlot {
    fn drop(&mut self) {
        self.requests.lock().remove(&self.request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::HeadRoom;

    fn take(requests: &Arc<Requests>, client: IpAddr, has_body: bool) -> Result<Slot, Full> {
        let arrival = if has_body { Arrival::Partial } else { Arrival::Whole };
        requests.take(client, arrival, HeadRoom::new(0).slot())
    }

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[tokio::test]
    async fn the_largest_holders_oldest_unread_request_is_ended() {
        let requests = Requests::new(4);
        let other = take(&requests, client(2), true).expect("a slot");
        let runs = take(&requests, client(1), true).expect("a slot");
        assert!(runs.stay());
        let oldest = take(&requests, client(1), true).expect("a slot");
        let _youngest = take(&requests, client(1), true).expect("a slot");
        assert_eq!(take(&requests, client(1), true).err(), Some(Full), "this client already has the most");
        let new = take(&requests, client(3), false).expect("a slot");
        oldest.end_requested().await;
        assert!(!oldest.stay(), "too late");
        drop((oldest, new));
        assert_eq!(requests.lock().count, 3, "the ended request is no longer counted");
        assert!(other.stay() && runs.stay());
    }

    #[test]
    fn nothing_goes_that_runs_or_whose_client_has_as_few() {
        let requests = Requests::new(2);
        let _runs = [
            take(&requests, client(1), false).expect("a slot"),
            take(&requests, client(1), false).expect("a slot"),
        ];
        assert_eq!(take(&requests, client(2), true).err(), Some(Full));
        let requests = Requests::new(2);
        let _few = [
            take(&requests, client(1), true).expect("a slot"),
            take(&requests, client(2), true).expect("a slot"),
        ];
        assert_eq!(take(&requests, client(3), true).err(), Some(Full));
    }

    #[test]
    fn nothing_is_left_of_requests_that_ended_in_any_way() {
        let requests = Requests::new(4);
        let mut slots: Vec<_> = (0..4).map(|_| take(&requests, client(1), true).expect("a slot")).collect();
        assert!(slots[1].stay());
        let other = take(&requests, client(2), true).expect("a slot, because the first request is ended");
        assert!(!slots[0].stay() && slots[1].stay() && slots[2].stay() && other.stay());
        assert_eq!(requests.lock().with_unread.iter().copied().collect::<Vec<_>>(), [(3, client(1))]);
        slots.swap(0, 3);
        drop((slots, other));
        let running = requests.lock();
        assert_eq!((running.count, running.clients.len(), running.with_unread.len()), (0, 0, 0));
    }

    #[test]
    fn the_last_places_are_for_clients_that_have_few() {
        let requests = Requests::new(128);
        let mut held = Vec::new();
        while let Ok(slot) = take(&requests, client(1), false) {
            held.push(slot);
        }
        assert_eq!(held.len(), 112);
        for _ in 0..2 {
            held.push(take(&requests, client(2), false).expect("a reserved slot"));
        }
        assert_eq!(take(&requests, client(2), false).err(), Some(Full), "it has a few by now");
    }
}
