//! A memory budget that many requests share.
//!
//! Tracks who holds how much, who waits for more, and whose share is revoked. A share is never revoked after its holder
//! was promised to keep it.

use super::body_budget::NoRoom;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
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
    shares: HashMap<u64, Entry>,
    /// What each client holds, without revoked shares.
    held: HashMap<Option<IpAddr>, u32>,
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
    may_go: bool,
    signal: Arc<Signal>,
}

/// Notifies a holder of a change.
#[derive(Debug, Default)]
struct Signal {
    notify: Notify,
    is_revoked: AtomicBool,
}

/// One share, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Budget,
    number: u64,
    signal: Arc<Signal>,
}

impl Budget {
    pub(crate) fn new(kib_max: u32) -> Self {
        let state = State { free: kib_max, ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), kib_max }
    }

    /// An empty share. It may be revoked until it [stays](Share::stay).
    pub(crate) fn share(&self, client: Option<IpAddr>) -> Share {
        let signal = Arc::<Signal>::default();
        let entry = Entry { client, held: 0, wanted: 0, may_go: true, signal: Arc::clone(&signal) };
        let mut state = self.lock();
        let number = state.begun;
        state.begun += 1;
        state.shares.insert(number, entry);
        drop(state);
        Share { budget: self.clone(), number, signal }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is complete, so the state is consistent even after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn held_by(&self, client: Option<IpAddr>) -> u32 {
        self.held.get(&client).copied().unwrap_or_default()
    }

    /// `number` holds `kib` more.
    fn take(&mut self, number: u64, kib: u32) {
        let Some(entry) = self.shares.get_mut(&number) else { return };
        self.free -= kib;
        entry.held += kib;
        *self.held.entry(entry.client).or_default() += kib;
    }

    /// No longer counts a share as its client's.
    fn uncount(&mut self, client: Option<IpAddr>, kib: u32) {
        if let Some(held) = self.held.get_mut(&client) {
            *held -= kib;
            if *held == 0 {
                self.held.remove(&client);
            }
        }
    }

    /// `number` no longer waits. Returns what it waited for.
    fn unwait(&mut self, number: u64) -> u32 {
        self.waiting.remove(&number);
        self.shares.get_mut(&number).map_or(0, |entry| std::mem::take(&mut entry.wanted))
    }

    /// Assigns free memory, first to the clients that hold least.
    fn hand_out(&mut self) {
        loop {
            let least = self.waiting.iter().min_by_key(|number| {
                let client = self.shares.get(number).and_then(|entry| entry.client);
                (self.held_by(client), **number)
            });
            let Some(number) = least.copied() else { return };
            if self.shares.get(&number).is_some_and(|entry| entry.wanted > self.free) {
                return;
            }
            let wanted = self.unwait(number);
            self.take(number, wanted);
            if let Some(entry) = self.shares.get(&number) {
                entry.signal.notify.notify_one();
            }
        }
    }

    /// Revokes shares until there is enough for `number`: the largest share of the client that holds most, as long as
    /// that is more than the waiting client would have.
    fn make_room(&mut self, number: u64) {
        let Some((client, wanted)) = self.shares.get(&number).map(|entry| (entry.client, entry.wanted))
        else {
            return;
        };
        let own = self.held_by(client).saturating_add(wanted);
        let mut coming = self.free;
        while coming < wanted {
            let may_go = self.shares.iter().filter(|(_, entry)| entry.may_go && entry.held > 0);
            let largest = may_go
                .max_by_key(|(number, entry)| (self.held_by(entry.client), entry.held, Reverse(**number)));
            let Some((number, client, held)) =
                largest.map(|(number, entry)| (*number, entry.client, entry.held))
            else {
                return;
            };
            if self.held_by(client) <= own {
                return;
            }
            coming += held;
            self.uncount(client, held);
            self.unwait(number);
            if let Some(entry) = self.shares.get_mut(&number) {
                entry.may_go = false;
                entry.signal.is_revoked.store(true, Ordering::Release);
                entry.signal.notify.notify_one();
            }
        }
    }
}

impl Share {
    /// Grows the share to `kib`. Waits at most `wait`, and revokes shares of others after `moment`.
    pub(crate) async fn grow_to(&mut self, kib: u32, moment: Duration, wait: Duration) -> Result<(), NoRoom> {
        let moment = moment.min(wait);
        if self.try_grow_to(kib)? {
            return Ok(());
        }
        let waiting = async {
            if timeout(moment, self.granted()).await.is_err() {
                self.budget.lock().make_room(self.number);
                tokio::select! {
                    () = self.granted() => {}
                    () = sleep(wait.saturating_sub(moment)) => {}
                }
            }
        };
        waiting.await;
        let mut state = self.budget.lock();
        let was_granted = state.unwait(self.number) == 0;
        // The next waiter may now have enough.
        state.hand_out();
        drop(state);
        if was_granted && !self.is_revoked() { Ok(()) } else { Err(NoRoom) }
    }

    /// Whether it has `kib` now; otherwise it waits for the rest.
    fn try_grow_to(&self, kib: u32) -> Result<bool, NoRoom> {
        let mut state = self.budget.lock();
        if self.is_revoked() {
            return Err(NoRoom);
        }
        let Some(entry) = state.shares.get_mut(&self.number) else { return Err(NoRoom) };
        let more = kib.saturating_sub(entry.held);
        if more == 0 {
            return Ok(true);
        }
        entry.wanted = more;
        state.waiting.insert(self.number);
        state.hand_out();
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
    pub(crate) fn stay(&self) -> Result<(), NoRoom> {
        let mut state = self.budget.lock();
        if let Some(entry) = state.shares.get_mut(&self.number) {
            entry.may_go = false;
        }
        if self.is_revoked() { Err(NoRoom) } else { Ok(()) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.unwait(self.number);
        if let Some(entry) = state.shares.remove(&self.number) {
            state.free += entry.held;
            if !self.is_revoked() {
                state.uncount(entry.client, entry.held);
            }
            state.hand_out();
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

    async fn share(budget: &Budget, of: u8, kib: u32) -> Share {
        let mut share = budget.share(Some(client(of)));
        share.grow_to(kib, NONE, NONE).await.expect("room");
        share
    }

    #[tokio::test]
    async fn the_largest_share_of_the_largest_client_is_evicted() {
        let budget = Budget::new(100);
        let other = share(&budget, 2, 20).await;
        let (small, large) = (share(&budget, 1, 35).await, share(&budget, 1, 45).await);
        let mut new = budget.share(Some(client(3)));
        let (grown, ()) = tokio::join!(new.grow_to(10, NONE, LONG), async {
            large.revoked().await;
            drop(large);
        });
        assert_eq!(grown, Ok(()));
        assert!(!small.is_revoked() && !other.is_revoked());
    }

    #[tokio::test]
    async fn no_settled_or_equally_large_share_is_evicted() {
        let budget = Budget::new(100);
        let (stays, more) = (share(&budget, 1, 60).await, share(&budget, 1, 40).await);
        assert_eq!(stays.stay(), Ok(()));
        let mut own = budget.share(Some(client(1)));
        assert_eq!(own.grow_to(10, NONE, NONE).await, Err(NoRoom), "its own client holds most");
        let mut greedy = budget.share(Some(client(2)));
        assert_eq!(greedy.grow_to(100, NONE, NONE).await, Err(NoRoom), "it would hold as much");
        assert!(!more.is_revoked() && !stays.is_revoked());
        let mut new = budget.share(Some(client(2)));
        let (grown, ()) = tokio::join!(new.grow_to(10, NONE, LONG), async {
            more.revoked().await;
            assert_eq!(more.stay(), Err(NoRoom), "too late");
            drop(more);
        });
        assert_eq!(grown, Ok(()));
        assert!(!stays.is_revoked());
    }

    #[tokio::test]
    async fn free_memory_goes_first_to_the_client_with_least() {
        let budget = Budget::new(100);
        let (first, rest) = (share(&budget, 1, 50).await, share(&budget, 1, 50).await);
        assert_eq!((first.stay(), rest.stay()), (Ok(()), Ok(())));
        let (mut many, mut few) = (budget.share(Some(client(1))), budget.share(Some(client(2))));
        let (many, few, ()) = tokio::join!(
            many.grow_to(50, LONG, Duration::from_millis(50)),
            few.grow_to(50, LONG, LONG),
            async {
                tokio::task::yield_now().await;
                drop(rest);
            }
        );
        assert_eq!((many, few), (Err(NoRoom), Ok(())), "although it arrived later");
    }
}
