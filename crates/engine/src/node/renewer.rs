//! Renews the leases of running attempts, even if their work blocks.
//!
//! One task waits for the first renewal of every lease; from then on there is one task per lease. Most attempts end
//! before that and only need an entry in a list. Work that blocks its thread cannot delay a renewal, and no renewal is
//! sent after its attempt has ended.

use crate::node::ownership::Ownership;
use crate::runtime::clock::Clock;
use crate::runtime::spawn::Spawn;
use futures_util::FutureExt as _;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// The attempts of one node whose leases are renewed. The task ends when this is dropped.
pub(crate) struct Renewer {
    shared: Arc<Shared>,
}

struct Shared {
    list: Mutex<List>,
    /// An attempt is due earlier than the task would wake, or the renewer is dropped.
    sooner: Notify,
}

/// When an attempt is due, by the uptime, and its number.
type Due = (Duration, u64);

/// Attempts without a renewal yet, in the order in which they are due.
type Waiting = BTreeMap<Due, Arc<Ownership>>;

struct List {
    waiting: Waiting,
    numbered: u64,
    /// When the task wakes next.
    looks_at: Duration,
    is_over: bool,
}

impl Shared {
    /// No foreign code runs under the lock.
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an attempt to the list. Returns whether it is due before the task would wake.
    fn enter(&self, due_at: Duration, ownership: Arc<Ownership>) -> (Due, bool) {
        let mut list = self.list();
        list.numbered += 1;
        let due = (due_at, list.numbered);
        list.waiting.insert(due, ownership);
        let is_sooner = due_at < list.looks_at;
        list.looks_at = list.looks_at.min(due_at);
        (due, is_sooner)
    }

    /// The attempts that are due, and when to wake next. `None` if the renewer is dropped.
    fn take_due(&self, now: Duration) -> Option<(Waiting, Option<Duration>)> {
        let mut list = self.list();
        if list.is_over {
            return None;
        }
        let later = list.waiting.split_off(&(now.saturating_add(Duration::from_nanos(1)), 0));
        let due = std::mem::replace(&mut list.waiting, later);
        let next = list.waiting.keys().next().map(|(at, _)| *at);
        list.looks_at = next.unwrap_or(Duration::MAX);
        Some((due, next))
    }

    async fn tend(&self, clock: &dyn Clock) {
        while let Some((due, next)) = self.take_due(clock.uptime()) {
            for ownership in due.into_values() {
                let spawn = Arc::clone(&ownership.node.spawn);
                spawn.spawn(Box::pin(renew(ownership)));
            }
            let sleep = async {
                match next {
                    Some(at) => clock.alarm(at.saturating_sub(clock.uptime())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = sleep => {}
            }
        }
    }
}

/// Renews one lease until it is stopped or the lease is lost.
async fn renew(ownership: Arc<Ownership>) {
    let renewing = async {
        tokio::select! {
            biased;
            () = ownership.renewed_enough.notified() => {}
            () = ownership.keep_lease() => {}
        }
    };
    // Observers are foreign code and run in here. If one panics, the lease is no longer renewed and counts as lost.
    if AssertUnwindSafe(renewing).catch_unwind().await.is_err() {
        // It may panic again. The attempt is already closed.
        drop(catch_unwind(AssertUnwindSafe(|| ownership.lose_lease())));
    }
}

impl Renewer {
    /// Starts the task.
    pub(crate) fn begin(clock: Arc<dyn Clock>, spawn: &dyn Spawn) -> Self {
        let list = List { waiting: BTreeMap::new(), numbered: 0, looks_at: Duration::MAX, is_over: false };
        let shared = Arc::new(Shared { list: Mutex::new(list), sooner: Notify::new() });
        // Not the node: a sleeping task would keep it and its store alive.
        let tended = Arc::clone(&shared);
        spawn.spawn(Box::pin(async move { tended.tend(&*clock).await }));
        Self { shared }
    }

    /// Renews the lease from now on; immediately if a third of it has passed, as after a slow claim.
    pub(crate) async fn keep(&self, ownership: &Arc<Ownership>) -> Renewal {
        let due_at = ownership.node.clock.uptime().saturating_add(ownership.renewal_due_in());
        let (due, is_sooner) = self.shared.enter(due_at, Arc::clone(ownership));
        let renewal = Renewal { due: Some(due), ownership: Arc::clone(ownership) };
        if is_sooner {
            self.shared.sooner.notify_one();
            // Tokio may schedule a task that is woken here on this thread only, and the work that runs next may block
            // it.
            yield_once().await;
        }
        renewal
    }

    /// Removes an attempt from the list. Returns whether it was still there: then nothing was or will be renewed.
    fn remove_due(&self, due: Due) -> bool {
        self.shared.list().waiting.remove(&due).is_some()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.shared.list().is_over = true;
        self.shared.sooner.notify_one();
    }
}

/// Renews a lease until it is dropped.
pub(crate) struct Renewal {
    due: Option<Due>,
    ownership: Arc<Ownership>,
}

impl Renewal {
    /// Stops the renewals. No renewal is sent after this returns.
    pub(crate) async fn end(mut self) {
        if self.stop() {
            // Wait for a renewal that is running.
            self.ownership.write_is_over().await;
        }
    }

    /// Stops the renewals. Returns whether one may be running.
    fn stop(&mut self) -> bool {
        let Some(due) = self.due.take() else { return false };
        let has_begun = !self.ownership.node.renewer.remove_due(due);
        if has_begun {
            self.ownership.renewed_enough.notify_one();
        }
        has_begun
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Yields to other tasks once.
async fn yield_once() {
    let mut gave_way = false;
    poll_fn(|context| {
        if gave_way {
            return Poll::Ready(());
        }
        gave_way = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
