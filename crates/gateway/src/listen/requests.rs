//! Who has requests under way, and whose goes when there are too many.
//!
//! What lives here: the requests of all connections, by their clients. What must never: a request that is ended after anything of
//! it was handed on.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The last of the places are for clients that have few.
const RESERVED: usize = 8;
const FEW: usize = 64;

/// The requests of all connections of one socket.
#[derive(Debug)]
pub(super) struct Requests {
    running: Mutex<Running>,
    total: usize,
}

#[derive(Debug, Default)]
struct Running {
    requests: HashMap<u64, Arc<Request>>,
    /// How many each client has.
    counts: HashMap<IpAddr, usize>,
    begun: u64,
}

/// One request that is under way.
#[derive(Debug)]
struct Request {
    client: IpAddr,
    state: AtomicU8,
    go: Notify,
}

/// Its body is being read, and nothing was handed on.
const UNREAD: u8 = 0;
/// It runs until it ends.
const STAYS: u8 = 1;
/// It was told to go.
const GOES: u8 = 2;

/// A request's place, until the last clone of it is dropped: an extension of each, which whoever runs a request keeps for as long
/// as it runs, also where its client is gone.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    request: Arc<Request>,
    number: u64,
    requests: Arc<Requests>,
}

/// There is no place for another request of this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Requests {
    pub(super) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self { running: Mutex::default(), total: total.max(1) })
    }

    /// A place for a request of `client`. Where there is none, a request goes whose body is still being read: of the client that
    /// has most of all, and more than this one, the one that came first.
    pub(super) fn take(self: &Arc<Self>, client: IpAddr, has_body: bool) -> Result<Place, Full> {
        let mut running = self.lock();
        let own = running.counts.get(&client).copied().unwrap_or_default();
        let reserved = if own < (self.total / FEW).max(1) { 0 } else { self.total / RESERVED };
        if running.requests.len() + reserved >= self.total {
            running.end_one(own)?;
        }
        let state = AtomicU8::new(if has_body { UNREAD } else { STAYS });
        let request = Arc::new(Request { client, state, go: Notify::new() });
        let number = running.begun;
        running.begun += 1;
        running.requests.insert(number, Arc::clone(&request));
        *running.counts.entry(client).or_default() += 1;
        drop(running);
        Ok(Place(Arc::new(Held { request, number, requests: Arc::clone(self) })))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        // Every change is whole: a panic elsewhere leaves it usable.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Has a request of somebody go who has more than one above `own`.
    fn end_one(&mut self, own: usize) -> Result<(), Full> {
        loop {
            let unread = self.requests.iter().filter(|(_, request)| request.is_unread());
            let most = unread.max_by_key(|(number, request)| {
                (self.counts.get(&request.client).copied(), std::cmp::Reverse(**number))
            });
            let (number, request) =
                most.map(|(number, request)| (*number, Arc::clone(request))).ok_or(Full)?;
            if self.counts.get(&request.client).copied().unwrap_or_default() <= own + 1 {
                return Err(Full);
            }
            // Its body may have come to its end in between.
            if request.change(GOES) {
                request.go.notify_one();
                self.remove(number);
                return Ok(());
            }
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(request) = self.requests.remove(&number) else { return };
        if let Some(count) = self.counts.get_mut(&request.client) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&request.client);
            }
        }
    }
}

impl Request {
    fn is_unread(&self) -> bool {
        self.state.load(Ordering::Acquire) == UNREAD
    }

    /// Whether it was still being read, and is `state` now.
    fn change(&self, state: u8) -> bool {
        self.state.compare_exchange(UNREAD, state, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

impl Place {
    /// Who it belongs to.
    pub(crate) fn client(&self) -> IpAddr {
        self.0.request.client
    }

    /// It is about to be handed on, or its body has been read: nobody ends it from now on. `false` where it was told to go.
    #[must_use]
    pub(crate) fn stay(&self) -> bool {
        self.0.request.change(STAYS) || self.0.request.state.load(Ordering::Acquire) == STAYS
    }

    /// Resolves once it is to make room for another.
    pub(super) async fn told_to_go(&self) {
        self.0.request.go.notified().await;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.requests.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[tokio::test]
    async fn the_oldest_unread_request_of_whoever_has_most_goes_for_another_client() {
        let requests = Requests::new(4);
        let other = requests.take(client(2), true).expect("a place");
        let runs = requests.take(client(1), true).expect("a place");
        assert!(runs.stay());
        let oldest = requests.take(client(1), true).expect("a place");
        let _youngest = requests.take(client(1), true).expect("a place");
        assert_eq!(requests.take(client(1), true).err(), Some(Full), "nobody has more than this one");
        let new = requests.take(client(3), false).expect("a place");
        oldest.told_to_go().await;
        assert!(!oldest.stay(), "too late");
        drop((oldest, new));
        assert_eq!(requests.lock().requests.len(), 3, "the one that went counts no more");
        assert!(other.stay() && runs.stay());
    }

    #[test]
    fn nothing_goes_that_runs_or_whose_client_has_as_few() {
        let requests = Requests::new(2);
        let _runs = [
            requests.take(client(1), false).expect("a place"),
            requests.take(client(1), false).expect("a place"),
        ];
        assert_eq!(requests.take(client(2), true).err(), Some(Full));
        let requests = Requests::new(2);
        let _few = [
            requests.take(client(1), true).expect("a place"),
            requests.take(client(2), true).expect("a place"),
        ];
        assert_eq!(requests.take(client(3), true).err(), Some(Full));
    }

    #[test]
    fn the_last_places_are_for_clients_that_have_few() {
        let requests = Requests::new(128);
        let mut held = Vec::new();
        while let Ok(place) = requests.take(client(1), false) {
            held.push(place);
        }
        assert_eq!(held.len(), 112);
        for _ in 0..2 {
            held.push(requests.take(client(2), false).expect("a place that is kept for it"));
        }
        assert_eq!(requests.take(client(2), false).err(), Some(Full), "it has a few by now");
    }
}
