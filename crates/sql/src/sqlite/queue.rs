//! A queue for threads.
//!
//! Contents: a bounded queue that many tasks fill without waiting and a few threads empty. No work happens
//! under its lock, and no thread is woken that is awake.

use semel_core::store::{Error, Kind};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(super) struct Queue<T> {
    held: Mutex<Contents<T>>,
    filled: Condvar,
    /// More items than this are refused: an error is better than a long wait.
    waiting_max: usize,
    /// Items with more total weight are refused too, except a single one.
    weight_max: usize,
    weigh: fn(&T) -> usize,
}

struct Contents<T> {
    waiting: VecDeque<T>,
    /// The total weight of the waiting items.
    weight: usize,
    /// Sleeping threads that have not been woken; never too low (a spurious wake-up still counts).
    asleep: usize,
    state: QueueState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueState {
    Open,
    /// Accepts nothing more; waiting items are still served.
    Closed,
    /// No thread is left.
    Abandoned,
}

impl<T> Queue<T> {
    pub(super) fn new(waiting_max: usize, weight_max: usize, weigh: fn(&T) -> usize) -> Self {
        let held = Contents { waiting: VecDeque::new(), weight: 0, asleep: 0, state: QueueState::Open };
        Self { held: Mutex::new(held), filled: Condvar::new(), waiting_max, weight_max, weigh }
    }

    fn has_room(&self, held: &Contents<T>, weight: usize) -> bool {
        let is_light = held.weight.saturating_add(weight) <= self.weight_max;
        held.waiting.len() < self.waiting_max && (is_light || held.waiting.is_empty())
    }

    fn pop(&self, held: &mut Contents<T>) -> Option<T> {
        let item = held.waiting.pop_front()?;
        held.weight -= (self.weigh)(&item);
        Some(item)
    }

    /// No foreign code runs under the lock, so its data is consistent even after a panic.
    fn held(&self) -> MutexGuard<'_, Contents<T>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues `item`. If refused, it is dropped unseen.
    pub(super) fn push(&self, item: T) -> Result<(), Error> {
        let weight = (self.weigh)(&item);
        let mut held = self.held();
        match held.state {
            QueueState::Open if self.has_room(&held, weight) => {}
            QueueState::Open => {
                return Err(Error::new(Kind::Unavailable, "calling the SQLite store").because(format!(
                    "{} calls with {} bytes are already waiting; calls arrive faster than the disk can answer",
                    held.waiting.len(),
                    held.weight
                )));
            }
            QueueState::Closed => return Err(Error::new(Kind::Closed, "calling the SQLite store")),
            QueueState::Abandoned => {
                return Err(Error::new(Kind::Unavailable, "calling the SQLite store")
                    .because("its thread has failed; open the store again"));
            }
        }
        held.waiting.push_back(item);
        held.weight += weight;
        let wake = held.asleep > 0;
        if wake {
            // Decrement here, so that the next push does not wake the same thread again: each wake-up is a
            // system call.
            held.asleep -= 1;
        }
        drop(held);
        if wake {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits for an item; `None` when the queue is closed and empty.
    pub(super) fn take(&self) -> Option<T> {
        self.pop(&mut *self.filled(self.held())?)
    }

    /// Waits for items and takes them in order: at most `count_max`, and at most one beyond a total of
    /// `weight_max`. `false` when the queue is closed and empty.
    pub(super) fn gather(
        &self,
        into: &mut Vec<T>,
        count_max: usize,
        weight_max: usize,
        weight: impl Fn(&T) -> usize,
    ) -> bool {
        let Some(held) = self.filled(self.held()) else { return false };
        self.fill(held, into, count_max, weight_max, weight);
        true
    }

    /// Adds items that have arrived since, within the same limits, without waiting.
    pub(super) fn gather_more(
        &self,
        into: &mut Vec<T>,
        count_max: usize,
        weight_max: usize,
        weight: impl Fn(&T) -> usize,
    ) {
        self.fill(self.held(), into, count_max, weight_max, weight);
    }

    fn fill(
        &self,
        mut held: MutexGuard<'_, Contents<T>>,
        into: &mut Vec<T>,
        count_max: usize,
        weight_max: usize,
        weight: impl Fn(&T) -> usize,
    ) {
        let mut total: usize = into.iter().map(&weight).sum();
        while into.len() < count_max && total < weight_max {
            let Some(item) = self.pop(&mut held) else { break };
            total += weight(&item);
            into.push(item);
        }
    }

    /// Waits for `span`, so that more items can arrive, unless there are `enough` already or the queue is
    /// closed. New items wake nobody meanwhile.
    pub(super) fn linger(&self, span: Duration, enough: usize) {
        let held = self.held();
        if held.state == QueueState::Open && held.waiting.len() < enough {
            drop(self.filled.wait_timeout(held, span));
        }
    }

    fn filled<'a>(&self, mut held: MutexGuard<'a, Contents<T>>) -> Option<MutexGuard<'a, Contents<T>>> {
        while held.waiting.is_empty() {
            if held.state != QueueState::Open {
                return None;
            }
            held.asleep += 1;
            held = self.filled.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        Some(held)
    }

    /// Closes the queue. Waiting items are still served.
    pub(super) fn close(&self) {
        let mut held = self.held();
        if held.state == QueueState::Open {
            held.state = QueueState::Closed;
        }
        self.filled.notify_all();
    }

    /// No thread is left: drops the waiting items, which notifies their callers.
    pub(super) fn abandon(&self) {
        let mut held = self.held();
        if held.state == QueueState::Open {
            held.state = QueueState::Abandoned;
        }
        let left = std::mem::take(&mut held.waiting);
        held.weight = 0;
        drop(held);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(queue: &Queue<u8>, count_max: usize, weight_max: usize) -> Option<Vec<u8>> {
        let mut into = Vec::new();
        queue.gather(&mut into, count_max, weight_max, |item| usize::from(*item)).then_some(into)
    }

    #[test]
    fn jobs_are_taken_in_order_within_count_and_weight() {
        let queue = Queue::new(10, 0, |_| 0);
        (1..=6).for_each(|item| queue.push(item).expect("there is room"));
        assert_eq!(gathered(&queue, 2, 100), Some(vec![1, 2]));
        assert_eq!(gathered(&queue, 9, 5), Some(vec![3, 4]));
        assert_eq!(gathered(&queue, 9, 1), Some(vec![5]), "one is taken whatever it weighs");
        assert_eq!(queue.take(), Some(6));
    }

    #[test]
    fn a_batch_is_filled_up_to_the_same_bounds() {
        let queue = Queue::new(10, 0, |_| 0);
        (1..=6).for_each(|item| queue.push(item).expect("there is room"));
        let weight = |item: &u8| usize::from(*item);
        let mut batch = vec![5];
        queue.gather_more(&mut batch, 9, 8, weight);
        assert_eq!(batch, [5, 1, 2]);
        queue.gather_more(&mut batch, 4, 100, weight);
        assert_eq!(batch, [5, 1, 2, 3]);
        queue.gather_more(&mut batch, 9, 100, weight);
        queue.gather_more(&mut batch, 9, 100, weight);
        assert_eq!(batch, [5, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn waiting_for_more_jobs_ends_when_full_or_closed() {
        let (queue, never) = (Queue::new(10, 0, |_: &u8| 0), Duration::from_hours(1));
        queue.push(1).expect("there is room");
        queue.linger(never, 1);
        queue.close();
        queue.linger(never, 2);
    }

    #[test]
    fn a_closed_queue_drains_and_refuses_new_jobs() {
        let queue = Queue::new(10, 0, |_| 0);
        queue.push(1).expect("there is room");
        queue.close();
        assert_eq!(queue.push(2).map_err(|error| error.kind()), Err(Kind::Closed));
        assert_eq!(gathered(&queue, 9, 9), Some(vec![1]));
        assert_eq!(gathered(&queue, 9, 9), None);
        assert_eq!(queue.take(), None);
    }

    #[test]
    fn a_full_queue_refuses_new_jobs() {
        let queue = Queue::new(1, 0, |_| 0);
        queue.push(1).expect("there is room");
        assert_eq!(queue.push(2).map_err(|error| error.kind()), Err(Kind::Unavailable));
        assert_eq!(queue.take(), Some(1));
        queue.push(3).expect("there is room again");
    }

    #[test]
    fn waiting_jobs_are_bounded_by_weight_except_a_single_one() {
        let queue = Queue::new(10, 10, |item: &u8| usize::from(*item));
        queue.push(200).expect("it is alone");
        assert_eq!(queue.push(1).map_err(|error| error.kind()), Err(Kind::Unavailable));
        assert_eq!(queue.take(), Some(200));
        queue.push(6).expect("there is room");
        queue.push(4).expect("there is room");
        assert_eq!(queue.push(1).map_err(|error| error.kind()), Err(Kind::Unavailable));
        assert_eq!(gathered(&queue, 1, 100), Some(vec![6]));
        queue.push(6).expect("there is room again");
    }

    #[test]
    fn an_abandoned_queue_drops_its_jobs_and_refuses_new_ones() {
        let queue = Queue::new(10, 0, |_| 0);
        let waits = std::sync::Arc::new(());
        queue.push(waits.clone()).expect("there is room");
        queue.abandon();
        assert_eq!(std::sync::Arc::strong_count(&waits), 1);
        assert_eq!(queue.push(waits).map_err(|error| error.kind()), Err(Kind::Unavailable));
        assert!(queue.take().is_none());
    }
}
