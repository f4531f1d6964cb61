//! A memory budget that many requests share.
//!
//! Tracks who holds how much, who waits for more, and whose reservation is revoked. A reservation is never revoked
//! after its holder was promised to keep it.

use crate::fairness::Holdings;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// A budget in KiB.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    state: Arc<Mutex<State>>,
    pub(crate) kib_max: u32,
}

#[derive(Debug, Default)]
struct State {
    free: u32,
    reservations: HashMap<u64, Entry>,
    /// What each client holds in KiB, without revoked reservations.
    held: Holdings<Option<IpAddr>>,
    /// Who waits.
    waiting: BTreeSet<u64>,
    begun: u64,
}

#[derive(Debug)]
struct Entry {
    client: Option<IpAddr>,
    held: u32,
    /// How much it waits for.
    wanted: u32,
    is_evictable: bool,
    signal: Arc<Signal>,
}

/// Notifies a holder of a change.
#[derive(Debug, Default)]
struct Signal {
    notify: Notify,
    is_revoked: AtomicBool,
}

/// One reservation, until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Budget,
    number: u64,
    signal: Arc<Signal>,
}

/// There was no memory in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetExhausted;

impl fmt::Display for BudgetExhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there was no memory in time")
    }
}

impl std::error::Error for BudgetExhausted {}

impl Budget {
    pub(crate) fn new(kib_max: u32) -> Self {
        let state = State { free: kib_max, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), kib_max }
    }

    /// An empty reservation. It may be revoked until it [is kept](Reservation::keep).
    pub(crate) fn reserve(&self, client: Option<IpAddr>) -> Reservation {
        let signal = Arc::<Signal>::default();
        let entry = Entry { client, held: 0, wanted: 0, is_evictable: true, signal: Arc::clone(&signal) };
        let mut state = self.lock();
        let number = state.begun;
        state.begun += 1;
        state.reservations.insert(number, entry);
        drop(state);
        Reservation { budget: self.clone(), number, signal }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete, so the state is consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `number` holds `kib` more.
    fn take(&mut self, number: u64, kib: u32) {
        let Some(entry) = self.reservations.get_mut(&number) else { return };
        self.free -= kib;
        entry.held += kib;
        self.held.add(entry.client, kib as usize);
    }

    /// `number` no longer waits. Returns what it waited for.
    fn unwait(&mut self, number: u64) -> u32 {
        self.waiting.remove(&number);
        self.reservations.get_mut(&number).map_or(0, |entry| std::mem::take(&mut entry.wanted))
    }

    /// Assigns free memory, first to the clients that hold least.
    fn grant_free(&mut self) {
        loop {
            let least = self.waiting.iter().min_by_key(|number| {
                let client = self.reservations.get(number).and_then(|entry| entry.client);
                (self.held.of(&client), **number)
            });
            let Some(number) = least.copied() else { return };
            if self.reservations.get(&number).is_some_and(|entry| entry.wanted > self.free) {
                return;
            }
            let wanted = self.unwait(number);
            self.take(number, wanted);
            if let Some(entry) = self.reservations.get(&number) {
                entry.signal.notify.notify_one();
            }
        }
    }

    /// Revokes reservations until there is enough for `number`: the largest reservation of the client that holds most,
    /// as long as that is more than the waiting client would have.
    fn evict_for(&mut self, number: u64) {
        let Some((client, wanted)) = self.reservations.get(&number).map(|entry| (entry.client, entry.wanted))
        else {
            return;
        };
        let own = self.held.of(&client).saturating_add(wanted as usize);
        let mut coming = self.free;
        while coming < wanted {
            let evictable =
                self.reservations.iter().filter(|(_, entry)| entry.is_evictable && entry.held > 0);
            let largest = evictable
                .max_by_key(|(number, entry)| (self.held.of(&entry.client), entry.held, Reverse(**number)));
            let Some((number, client, held)) =
                largest.map(|(number, entry)| (*number, entry.client, entry.held))
            else {
                return;
            };
            if self.held.of(&client) <= own {
                return;
            }
            coming += held;
            self.held.remove(&client, held as usize);
            self.unwait(number);
            if let Some(entry) = self.reservations.get_mut(&number) {
                entry.is_evictable = false;
                entry.signal.is_revoked.store(true, Ordering::Release);
                entry.signal.notify.notify_one();
            }
        }
    }
}

impl Reservation {
    /// Grows the reservation to `kib`. Waits at most `wait`, and revokes reservations of others after `grace`.
    pub(crate) async fn grow_to(
        &mut self,
        kib: u32,
        grace: Duration,
        wait: Duration,
    ) -> Result<(), BudgetExhausted> {
        let grace = grace.min(wait);
        if self.try_grow_to(kib)? {
            return Ok(());
        }
        let waiting = async {
            if timeout(grace, self.granted()).await.is_err() {
                self.budget.lock().evict_for(self.number);
                tokio::select! {
                    () = self.granted() => {}
                    () = sleep(wait.saturating_sub(grace)) => {}
                }
            }
        };
        waiting.await;
        let mut state = self.budget.lock();
        let was_granted = state.unwait(self.number) == 0;
        // The next waiter may now have enough.
        state.grant_free();
        drop(state);
        if was_granted && !self.is_revoked() { Ok(()) } else { Err(BudgetExhausted) }
    }

    /// Whether it has `kib` now; otherwise it waits for the rest.
    fn try_grow_to(&self, kib: u32) -> Result<bool, BudgetExhausted> {
        let mut state = self.budget.lock();
        if self.is_revoked() {
            return Err(BudgetExhausted);
        }
        let Some(entry) = state.reservations.get_mut(&self.number) else { return Err(BudgetExhausted) };
        let more = kib.saturating_sub(entry.held);
        if more == 0 {
            return Ok(true);
        }
        entry.wanted = more;
        state.waiting.insert(self.number);
        state.grant_free();
        Ok(!state.waiting.contains(&self.number))
    }

    /// Completes when it has what it waits for, or is revoked.
    async fn granted(&self) {
        while self.budget.lock().waiting.contains(&self.number) {
            self.signal.notify.notified().await;
        }
    }

    fn is_revoked(&self) -> bool {
        self.signal.is_revoked.load(Ordering::Acquire)
    }

    /// Completes when it is revoked.
    pub(crate) async fn revoked(&self) {
        while !self.is_revoked() {
            self.signal.notify.notified().await;
        }
    }

    /// From now on it cannot be revoked. Fails if it was.
    pub(crate) fn keep(&self) -> Result<(), BudgetExhausted> {
        let mut state = self.budget.lock();
        if let Some(entry) = state.reservations.get_mut(&self.number) {
            entry.is_evictable = false;
        }
        if self.is_revoked() { Err(BudgetExhausted) } else { Ok(()) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.unwait(self.number);
        if let Some(entry) = state.reservations.remove(&self.number) {
            state.free += entry.held;
            if !self.is_revoked() {
                state.held.remove(&entry.client, entry.held as usize);
            }
            state.grant_free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;
    const LONG: Duration = Duration::from_mins(1);

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    async fn reserved(budget: &Budget, of: u8, kib: u32) -> Reservation {
        let mut reservation = budget.reserve(Some(client(of)));
        reservation.grow_to(kib, NONE, NONE).await.expect("memory");
        reservation
    }

    #[tokio::test]
    async fn the_largest_reservation_of_the_largest_client_is_evicted() {
        let budget = Budget::new(100);
        let other = reserved(&budget, 2, 20).await;
        let (small, large) = (reserved(&budget, 1, 35).await, reserved(&budget, 1, 45).await);
        let mut new = budget.reserve(Some(client(3)));
        let (grown, ()) = tokio::join!(new.grow_to(10, NONE, LONG), async {
            large.revoked().await;
            drop(large);
        });
        assert_eq!(grown, Ok(()));
        assert!(!small.is_revoked() && !other.is_revoked());
    }

    #[tokio::test]
    async fn no_settled_or_equally_large_reservation_is_evicted() {
        let budget = Budget::new(100);
        let (stays, more) = (reserved(&budget, 1, 60).await, reserved(&budget, 1, 40).await);
        assert_eq!(stays.keep(), Ok(()));
        let mut own = budget.reserve(Some(client(1)));
        assert_eq!(own.grow_to(10, NONE, NONE).await, Err(BudgetExhausted), "its own client holds most");
        let mut greedy = budget.reserve(Some(client(2)));
        assert_eq!(greedy.grow_to(100, NONE, NONE).await, Err(BudgetExhausted), "it would hold as much");
        assert!(!more.is_revoked() && !stays.is_revoked());
        let mut new = budget.reserve(Some(client(2)));
        let (grown, ()) = tokio::join!(new.grow_to(10, NONE, LONG), async {
            more.revoked().await;
            assert_eq!(more.keep(), Err(BudgetExhausted), "too late");
            drop(more);
        });
        assert_eq!(grown, Ok(()));
        assert!(!stays.is_revoked());
    }

    #[tokio::test]
    async fn free_memory_goes_first_to_the_client_with_least() {
        let budget = Budget::new(100);
        let (first, rest) = (reserved(&budget, 1, 50).await, reserved(&budget, 1, 50).await);
        assert_eq!((first.keep(), rest.keep()), (Ok(()), Ok(())));
        let (mut many, mut few) = (budget.reserve(Some(client(1))), budget.reserve(Some(client(2))));
        let (many, few, ()) = tokio::join!(
            many.grow_to(50, LONG, Duration::from_millis(50)),
            few.grow_to(50, LONG, LONG),
            async {
                tokio::task::yield_now().await;
                drop(rest);
            }
        );
        assert_eq!((many, few), (Err(BudgetExhausted), Ok(())), "although it arrived later");
    }
}
