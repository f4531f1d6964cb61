//! The engine's tasks, and how they are ended.
//!
//! The number of running tasks, and the three stages of closing.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Notify, watch};

/// The stages of closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    /// Not closing.
    Open,
    /// Nothing new is accepted; running attempts may end.
    Draining,
    /// Running attempts are dropped, and their records get what is known.
    Now,
}

#[derive(Debug)]
pub(crate) struct Tasks {
    closing: watch::Sender<Closing>,
    running: Arc<RunningCount>,
    /// Other tasks, which no attempt depends on: each looks for the lost claims of one command.
    beside: Arc<RunningCount>,
    /// How many of those ended without an answer.
    unanswered: AtomicUsize,
}

/// A counter, and a notification when it is zero. Not a channel: every command changes the counter twice, and a
/// channel would look for listeners each time.
#[derive(Debug, Default)]
struct RunningCount {
    count: AtomicUsize,
    none: Notify,
}

impl RunningCount {
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
            // Subscribe before reading: the last task may end in between.
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
pub(crate) struct Guard(Arc<RunningCount>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

impl Tasks {
    pub(crate) fn new() -> Self {
        let (running, beside, unanswered) = (Arc::default(), Arc::default(), AtomicUsize::new(0));
        Self { closing: watch::channel(Closing::Open).0, running, beside, unanswered }
    }

    /// One more task, unless the engine is closing.
    pub(crate) fn enter(&self) -> Option<Guard> {
        // Count first: a later close sees this task, and an earlier close is seen here.
        let guard = self.enter_anyway();
        (!self.is(Closing::Draining)).then_some(guard)
    }

    /// One more task, also while the engine is closing: for work that began earlier.
    pub(crate) fn enter_anyway(&self) -> Guard {
        self.running.enter()
    }

    /// One more task that is not an attempt: a shutdown waits for it only briefly, and counts it apart.
    pub(crate) fn enter_beside(&self) -> Guard {
        self.beside.enter()
    }

    /// Such a task ends without an answer.
    pub(crate) fn leave_unanswered(&self) {
        self.unanswered.fetch_add(1, Ordering::SeqCst);
    }

    /// How many such tasks ended without an answer, or have not ended.
    pub(crate) fn unanswered(&self) -> usize {
        // In this order: a task in between is counted twice rather than not at all.
        self.beside.now() + self.unanswered.load(Ordering::SeqCst)
    }

    /// Whether closing has reached this stage.
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

    /// Completes when closing has reached this stage.
    pub(crate) async fn closed(&self, closing: Closing) {
        let mut stage = self.closing.subscribe();
        // The sender is in `self`, so the channel stays open.
        let _ = stage.wait_for(|stage| *stage >= closing).await;
    }

    /// Completes when no attempt is running.
    pub(crate) async fn idle(&self) {
        self.running.idle().await;
    }

    /// Completes when no attempt and no other task is running.
    pub(crate) async fn all_idle(&self) {
        // In this order, because an attempt counts its other tasks before it ends.
        self.running.idle().await;
        self.beside.idle().await;
    }

    pub(crate) fn running(&self) -> usize {
        self.running.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn the_last_task_wakes_its_waiters() {
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
    async fn a_closing_engine_takes_no_task_and_notices_the_last() {
        let tasks = Tasks::new();
        let guard = tasks.enter().expect("open");
        tasks.close(Closing::Draining);
        assert!(tasks.enter().is_none());
        assert_eq!(tasks.running(), 1);
        tasks.closed(Closing::Draining).await;
        drop(guard);
        tasks.idle().await;
        tasks.close(Closing::Now);
        tasks.close(Closing::Draining);
        tasks.closed(Closing::Now).await;
    }
}
