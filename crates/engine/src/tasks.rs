//! The engine's own tasks, and how they are told to end.
//!
//! What lives here: counting what is under way, and the three stages of closing. What must never: what a task does.

use std::sync::Arc;
use tokio::sync::watch;

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
    under_way: Arc<watch::Sender<usize>>,
}

/// Counts as one task until it is dropped.
#[derive(Debug)]
pub(crate) struct Guard(Arc<watch::Sender<usize>>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.send_modify(|under_way| *under_way -= 1);
    }
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self { closing: watch::channel(Closing::Open).0, under_way: Arc::new(watch::channel(0).0) }
    }

    /// One more task, unless the engine is closing.
    pub(crate) fn enter(&self) -> Option<Guard> {
        // Counted first: whoever closes after this sees the count, whoever closed before is seen here.
        let guard = self.enter_anyway();
        (!self.is(Closing::Draining)).then_some(guard)
    }

    /// One more task, also while the engine is closing: for what it has begun before.
    pub(crate) fn enter_anyway(&self) -> Guard {
        self.under_way.send_modify(|under_way| *under_way += 1);
        Guard(Arc::clone(&self.under_way))
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

    /// Ends once the engine has come that far in closing.
    pub(crate) async fn closed(&self, closing: Closing) {
        let mut stage = self.closing.subscribe();
        // The sender lives in `self`, so the channel cannot end before.
        let _ = stage.wait_for(|stage| *stage >= closing).await;
    }

    /// Ends once no task is under way.
    pub(crate) async fn idle(&self) {
        let mut under_way = self.under_way.subscribe();
        let _ = under_way.wait_for(|under_way| *under_way == 0).await;
    }

    pub(crate) fn under_way(&self) -> usize {
        *self.under_way.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
