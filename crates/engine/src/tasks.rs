//! The engine's own tasks, and how they are told to end.
//!
//! Contents: counting what is under way, and the three stages of closing. Never here: what a task does.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// How far the engine has come in closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    /// Not at all.
    Open,
    /// Nothing new is taken; what runs may end.
    Draining,
    /// What still runs is dropped and its records are told what is known.
    Now,
}

#[derive(Debug)]
pub(crate) struct Tasks {
    closing: watch::Sender<Closing>,
    under_way: Arc<UnderWay>,
    /// What goes on beside attempts, and no attempt depends on.
    beside: Arc<UnderWay>,
}

/// A number, and anyone who waits for it to be zero. Not a channel: every command counts itself in and out, and a
/// channel would look for listeners each time.
#[derive(Debug, Default)]
struct UnderWay {
    count: AtomicUsize,
    none: Notify,
}

impl UnderWay {
    fn enter(self: &Arc<Self>) -> Guard {
        self.count.fetch_add(1, Ordering::SeqCst);
        Guard(Arc::clone(self))
    }

    fn now(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    async fn idle(&self) {
        loop {
            let none = self.none.notified();
            let mut none = pin!(none);
            // Listening before looking: the last one may leave in between.
            none.as_mut().enable();
            if self.now() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// Counts as one task until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Arc<UnderWay>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { closing: watch::channel(Closing::Open).0, under_way: Arc::default(), beside: Arc::default() }
    }

    /// One more task, unless the engine is closing.
    pub(crate) fn enter(&self) -> Option<Guard> {
        // Counted first: anyone who closes after this sees the count, anyone who closed before is seen here.
        let guard = self.enter_anyway();
        (!self.is(Closing::Draining)).then_some(guard)
    }

    /// One more task, also while the engine is closing: for what it has begun before.
    pub(crate) fn enter_anyway(&self) -> Guard {
        self.under_way.enter()
    }

    /// One more task that is no attempt: anyone who shuts down may wait for it, and does not count it.
    pub(crate) fn enter_beside(&self) -> Guard {
        self.beside.enter()
    }

    /// Whether the engine has come that far in closing.
    pub(crate) fn is(&self, closing: Closing) -> bool {
        *self.closing.borrow() >= closing
    }

    pub(crate) fn close(&self, closing: Closing) {
        self.closing.send_if_modified(|stage| {
            let further = closing > *stage;
            *stage = closing.max(*stage);
            further
        });
    }

    /// Ends as soon as the engine has come that far in closing.
    pub(crate) async fn closed(&self, closing: Closing) {
        let mut stage = self.closing.subscribe();
        // The sender lives in `self`, so the channel cannot end before.
        let _ = stage.wait_for(|stage| *stage >= closing).await;
    }

    /// Ends as soon as no task is under way.
    pub(crate) async fn idle(&self) {
        self.under_way.idle().await;
    }

    /// The same, and nothing beside them either.
    pub(crate) async fn all_idle(&self) {
        // In this order: what goes on beside an attempt is counted before the attempt is over.
        self.under_way.idle().await;
        self.beside.idle().await;
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn whoever_waits_for_the_last_task_is_woken_by_it_and_not_before() {
        let tasks = Tasks::new();
        let (first, last) = (tasks.enter().expect("open"), tasks.enter().expect("open"));
        let mut idle = pin!(tasks.idle());
        assert!(idle.as_mut().now_or_never().is_none());
        drop(first);
        assert!(idle.as_mut().now_or_never().is_none());
        drop(last);
        assert!(idle.as_mut().now_or_never().is_some());
    }

    #[tokio::test]
    async fn nothing_new_is_taken_once_the_engine_closes_and_the_last_one_out_is_noticed() {
        let tasks = Tasks::new();
        let guard = tasks.enter().expect("open");
        tasks.close(Closing::Draining);
        assert!(tasks.enter().is_none());
        assert_eq!(tasks.under_way(), 1);
        tasks.closed(Closing::Draining).await;
        drop(guard);
        tasks.idle().await;
        tasks.close(Closing::Now);
        tasks.close(Closing::Draining);
        tasks.closed(Closing::Now).await;
    }
}
