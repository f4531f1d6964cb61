//! Who renews the leases of attempts under way, whatever their work is doing.
//!
//! Contents: when each lease is to be renewed for the first time, one task that looks after all of them, and from
//! then on a task for each. Most attempts end before that, and cost a place in a list. Never here: a renewal that
//! work could hold up by keeping its thread, or one that is sent after its attempt has ended.

use crate::clock::Clock;
use crate::ownership::Ownership;
use crate::spawn::Spawn;
use futures_util::FutureExt as _;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// The attempts of one node whose leases are renewed. Its task ends when this is dropped.
pub(crate) struct Renewer {
    shared: Arc<Shared>,
}

struct Shared {
    list: Mutex<List>,
    /// Somebody is due before the task would look again, or it is over.
    sooner: Notify,
}

/// When an attempt is due, by the uptime, and its number.
type Due = (Duration, u64);

/// Attempts that nothing is renewed for yet, in the order in which they are due.
type Waiting = BTreeMap<Due, Arc<Ownership>>;

struct List {
    waiting: Waiting,
    numbered: u64,
    /// When the task looks again by itself.
    looks_at: Duration,
    is_over: bool,
}

impl Shared {
    /// No code of others runs under the lock.
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an attempt on the list. Tells whether it is due before the task would look again.
    fn enter(&self, due_at: Duration, ownership: Arc<Ownership>) -> (Due, bool) {
        let mut list = self.list();
        list.numbered += 1;
        let due = (due_at, list.numbered);
        list.waiting.insert(due, ownership);
        let is_sooner = due_at < list.looks_at;
        list.looks_at = list.looks_at.min(due_at);
        (due, is_sooner)
    }

    /// Anyone who is due by now, and when to look again. `None` if it is over.
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
            let nap = async {
                match next {
                    Some(at) => clock.alarm(at.saturating_sub(clock.uptime())).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.sooner.notified() => {}
                () = nap => {}
            }
        }
    }
}

/// Renews one lease until that is enough, or the lease is lost.
async fn renew(ownership: Arc<Ownership>) {
    let renewing = async {
        tokio::select! {
            biased;
            () = ownership.renewed_enough.notified() => {}
            () = ownership.keep_lease() => {}
        }
    };
    // Anyone who watches the engine is code of others and runs in here. If it panics nothing is renewed any more, and
    // that must not go unsaid: the lease counts as lost.
    if AssertUnwindSafe(renewing).catch_unwind().await.is_err() {
        // It may panic once more. The attempt is closed by then.
        drop(catch_unwind(AssertUnwindSafe(|| ownership.lose_lease())));
    }
}

impl Renewer {
    /// Starts the task.
    pub(crate) fn begin(clock: Arc<dyn Clock>, spawn: &dyn Spawn) -> Self {
        let list = List { waiting: BTreeMap::new(), numbered: 0, looks_at: Duration::MAX, is_over: false };
        let shared = Arc::new(Shared { list: Mutex::new(list), sooner: Notify::new() });
        // Not the node: it would be held for as long as the task sleeps, and with it the store.
        let tended = Arc::clone(&shared);
        spawn.spawn(Box::pin(async move { tended.tend(&*clock).await }));
        Self { shared }
    }

    /// Has the lease renewed from now on: at once where a third of it has passed, as it has under a claim that took
    /// long.
    pub(crate) async fn keep(&self, ownership: &Arc<Ownership>) -> Keeping {
        let due_at = ownership.node.clock.uptime().saturating_add(ownership.renewal_due_in());
        let (due, is_sooner) = self.shared.enter(due_at, Arc::clone(ownership));
        let keeping = Keeping { due: Some(due), ownership: Arc::clone(ownership) };
        if is_sooner {
            self.shared.sooner.notify_one();
            // A task that is woken here may be one that only this thread can run, as tokio has it; and what is run
            // next may keep the thread.
            give_way().await;
        }
        keeping
    }

    /// Takes an attempt off the list. Tells whether it was still on it: nothing was renewed, and nothing will be.
    fn take_off(&self, due: Due) -> bool {
        self.shared.list().waiting.remove(&due).is_some()
    }
}

impl Drop for Renewer {
    fn drop(&mut self) {
        self.shared.list().is_over = true;
        self.shared.sooner.notify_one();
    }
}

/// A lease that is renewed for as long as this lives.
pub(crate) struct Keeping {
    due: Option<Due>,
    ownership: Arc<Ownership>,
}

impl Keeping {
    /// Ends it. No renewal is sent as soon as this has returned.
    pub(crate) async fn end(mut self) {
        if self.stop() {
            // One that was under way holds this until it has been dropped, or answered.
            self.ownership.write_is_over().await;
        }
    }

    /// Has nothing more renewed. Tells whether something may be on its way.
    fn stop(&mut self) -> bool {
        let Some(due) = self.due.take() else { return false };
        let has_begun = !self.ownership.node.renewer.take_off(due);
        if has_begun {
            self.ownership.renewed_enough.notify_one();
        }
        has_begun
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Lets others run once.
async fn give_way() {
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
