//! Responses that wait for their clients, and which one is dropped if others need memory.
//!
//! How much each client has waiting. A response is never dropped while it is read from its service.

use super::waiting_bytes::{self, Pieces};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The responses of one layer that wait for their clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreadResponses(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    responses: HashMap<u64, Entry>,
    begun: u64,
}

struct Entry {
    client: Option<IpAddr>,
    pieces: Arc<Mutex<Pieces>>,
    /// A retry can get it again.
    is_stored: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiting({})", self.responses.len())
    }
}

/// A response that waits for its client, until this is dropped.
#[derive(Debug)]
pub(crate) struct Registered {
    number: u64,
    all: UnreadResponses,
}

impl UnreadResponses {
    pub(crate) fn register(
        &self,
        client: Option<IpAddr>,
        pieces: Arc<Mutex<Pieces>>,
        is_stored: bool,
    ) -> Registered {
        let mut waiting = self.lock();
        let number = waiting.begun;
        waiting.begun += 1;
        waiting.responses.insert(number, Entry { client, pieces, is_stored });
        drop(waiting);
        Registered { number, all: self.clone() }
    }

    /// Drops responses until `bytes` are free for `client`: of the client with most waiting, as long as that is more
    /// than this client would have; first those that a retry can get again, and of these the longest.
    pub(crate) fn evict_for(&self, client: Option<IpAddr>, bytes: usize) {
        let waiting = self.lock();
        let left: HashMap<u64, usize> = waiting
            .responses
            .iter()
            .map(|(number, entry)| (*number, waiting_bytes::lock(&entry.pieces).len()))
            .collect();
        let mut totals: HashMap<Option<IpAddr>, usize> = HashMap::new();
        for (number, entry) in &waiting.responses {
            *totals.entry(entry.client).or_default() += left[number];
        }
        let own = totals.get(&client).copied().unwrap_or_default().saturating_add(bytes);
        let mut order: Vec<_> = waiting.responses.iter().filter(|(number, _)| left[number] > 0).collect();
        order.sort_by_key(|(number, entry)| (entry.is_stored, left[number]));
        let mut given_up = 0;
        while given_up < bytes {
            let most = (0..order.len()).max_by_key(|at| (totals.get(&order[*at].1.client).copied(), *at));
            let Some((number, entry)) = most.map(|at| order.remove(at)) else { return };
            let total = totals.entry(entry.client).or_default();
            if *total <= own {
                return;
            }
            *total -= left[number];
            given_up += left[number];
            waiting_bytes::lock(&entry.pieces).give_up();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Every change is complete, so the state is consistent even after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // Drop it outside the lock: dropping the pieces frees memory and wakes waiters.
        let gone = self.all.lock().responses.remove(&self.number);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::super::response_budget::ResponseBudget;
    use super::super::waiting_bytes::{GivenUp, WaitingBytes};
    use bytes::Bytes;
    use std::net::IpAddr;

    const MIB: usize = 1 << 20;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    fn unread(budget: &ResponseBudget, of: u8, mib: usize, is_stored: bool) -> WaitingBytes {
        let mut memory = budget.memory(Some(client(of)));
        memory.try_grow_to(mib * MIB).expect("memory");
        WaitingBytes::counted([Bytes::from(vec![0; mib * MIB])], memory, is_stored)
    }

    fn is_given_up(held: &mut WaitingBytes) -> bool {
        matches!(held.next_piece(), Some(Err(GivenUp)))
    }

    #[test]
    fn unread_responses_of_the_largest_client_are_dropped_for_others() {
        // 12 MiB for long ones.
        let budget = ResponseBudget::new(16 * MIB);
        let mut small = unread(&budget, 1, 2, true);
        let mut lost_for_good = unread(&budget, 1, 4, false);
        let mut longest = unread(&budget, 1, 3, true);
        let mut other = unread(&budget, 2, 3, true);
        assert!(budget.memory(Some(client(1))).try_grow_to(MIB).is_err(), "it has most itself");
        let mut memory = budget.memory(Some(client(3)));
        assert!(memory.try_grow_to(3 * MIB).is_ok());
        assert!(is_given_up(&mut longest) && !longest.is_empty(), "its client must not treat it as complete");
        for stays in [&mut small, &mut lost_for_good, &mut other] {
            assert!(!is_given_up(stays));
        }
        assert!(budget.memory(Some(client(3))).try_grow_to(9 * MIB).is_err(), "no client has that much more");
    }
}
