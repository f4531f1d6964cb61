//! Writes that wait for a connection.

use super::job::Job;
use semel_core::id::CommandId;
use semel_core::store::{Error, Kind};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// How many writes may wait; far more than a server handles in a second.
const WAITING_MAX: usize = 1 << 15;
/// How many bytes of entries may wait, unless a single entry is larger.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// From this many waiting writes, another connection is worth its cost for the server.
pub(super) const MANY: usize = 16;

/// The bounds of a batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchSize {
    /// Fewer writes are left to connections that take any number.
    pub(super) rows_min: usize,
    pub(super) rows_max: usize,
    /// No entry is added beyond this; a single one may be longer.
    pub(super) bytes_max: usize,
}

/// A queue that many tasks fill and a few connections empty. No two writes to the same command run at once.
pub(super) struct Queue {
    held: Mutex<State>,
    changed: Notify,
    /// For connections that take many writes or none.
    grown: Notify,
    ids: Arc<Ids>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    bytes: usize,
    is_closed: bool,
}

/// The commands that are being written to.
#[derive(Default)]
pub(super) struct Ids {
    held: Mutex<BTreeSet<CommandId>>,
    released: Notify,
}

/// Marks a write to a command as running, until it is dropped.
pub(super) struct InFlight {
    id: CommandId,
    ids: Arc<Ids>,
}

impl Ids {
    fn reserve(self: &Arc<Self>, id: CommandId) -> Option<InFlight> {
        let is_new = self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        is_new.then(|| InFlight { id, ids: Arc::clone(self) })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.ids.held.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.ids.released.notify_waiters();
    }
}

impl Queue {
    pub(super) fn new(ids: Arc<Ids>) -> Self {
        Self { held: Mutex::default(), changed: Notify::new(), grown: Notify::new(), ids }
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A refused write is dropped: nothing of it was sent.
    pub(super) fn push(&self, job: Job) -> Result<(), Error> {
        const ASKING: &str = "queueing a write to PostgreSQL";
        let mut held = self.held();
        if held.is_closed {
            return Err(Error::new(Kind::Closed, ASKING));
        }
        let bytes = job.bytes();
        let is_light = held.bytes.saturating_add(bytes) <= WAITING_BYTES_MAX || held.waiting.is_empty();
        if held.waiting.len() >= WAITING_MAX || !is_light {
            let cause =
                format!("{} writes with {} bytes are waiting already", held.waiting.len(), held.bytes);
            return Err(Error::new(Kind::Unavailable, ASKING).because(cause));
        }
        held.bytes += bytes;
        held.waiting.push_back(job);
        let waiting = held.waiting.len();
        drop(held);
        self.announce(waiting);
        Ok(())
    }

    /// Wakes connections for the writes that wait.
    fn announce(&self, waiting: usize) {
        self.changed.notify_one();
        if waiting >= MANY {
            self.grown.notify_one();
        }
    }

    /// Waits for writes and takes those that have gathered, sorted by ID. `None` when the queue is closed and
    /// empty.
    pub(super) async fn next_batch(&self, size: BatchSize) -> Option<Vec<Job>> {
        loop {
            // Registered before the check, so that later changes wake this again.
            let changed = if size.rows_min < MANY { self.changed.notified() } else { self.grown.notified() };
            let released = self.ids.released.notified();
            tokio::pin!(changed, released);
            changed.as_mut().enable();
            released.as_mut().enable();
            let (batch, is_over) = self.gather(size);
            if !batch.is_empty() {
                return Some(batch);
            }
            if is_over {
                return None;
            }
            tokio::select! {
                () = changed => {}
                () = released => {}
            }
        }
    }

    /// The writes that can be sent now. Writes to a command with a running write stay in the queue.
    fn gather(&self, size: BatchSize) -> (Vec<Job>, bool) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut held = self.held();
        if held.waiting.len() < size.rows_min && !held.is_closed {
            return (batch, false);
        }
        let mut left = VecDeque::new();
        while let Some(mut job) = held.waiting.pop_front() {
            if !job.is_awaited() {
                held.bytes -= job.bytes();
                continue;
            }
            let is_full =
                batch.len() >= size.rows_max || (bytes + job.bytes() > size.bytes_max && !batch.is_empty());
            if is_full {
                left.push_back(job);
                break;
            }
            if job.in_flight.is_none() {
                job.in_flight = self.ids.reserve(job.id);
            }
            if job.in_flight.is_none() {
                left.push_back(job);
                continue;
            }
            bytes += job.bytes();
            held.bytes -= job.bytes();
            batch.push(job);
        }
        left.append(&mut held.waiting);
        held.waiting = left;
        let is_over = held.is_closed && held.waiting.is_empty();
        let waiting = held.waiting.len();
        drop(held);
        if waiting > 0 && !batch.is_empty() {
            // Another connection may take the rest.
            self.announce(waiting);
        }
        // The order in which rows are locked, the same on every node, so that there are no deadlocks.
        batch.sort_unstable_by(|a, b| a.operation_id.as_bytes().cmp(b.operation_id.as_bytes()));
        (batch, is_over)
    }

    /// Accepts no more writes. Waiting ones are still written.
    pub(super) fn close(&self) {
        self.held().is_closed = true;
        for waked in [&self.changed, &self.grown] {
            waked.notify_waiters();
            // For a connection that is about to check.
            waked.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::store::Change;
    use std::time::Duration;

    const SIZE: BatchSize = BatchSize { rows_min: 1, rows_max: 4, bytes_max: 1 << 20 };

    type Replies = Vec<tokio::sync::oneshot::Receiver<Result<super::super::job::Answer, Error>>>;

    fn filled(queue: &Queue, ids: &[u8]) -> Replies {
        let push = |id: &u8| {
            let (job, answer) = Job::new(CommandId::from_bytes([*id; 32]), Change::RemoveMarker);
            queue.push(job).expect("there is room");
            answer
        };
        ids.iter().map(push).collect()
    }

    fn ids(batch: &[Job]) -> Vec<u8> {
        let mut ids: Vec<u8> = batch.iter().map(|job| job.id.as_bytes()[0]).collect();
        ids.sort_unstable();
        ids
    }

    async fn is_stuck(queue: &Queue) -> bool {
        tokio::time::timeout(Duration::from_millis(20), queue.next_batch(SIZE)).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_holds_one_write_per_command_ordered_by_id() {
        let queue = Queue::new(Arc::default());
        let _replies = filled(&queue, &[3, 1, 3, 2, 1]);
        let first = queue.next_batch(SIZE).await.expect("writes");
        assert_eq!(ids(&first), [1, 2, 3]);
        assert!(first.is_sorted_by_key(|job| *job.operation_id.as_bytes()));
        assert!(is_stuck(&queue).await, "the same commands are running");
        drop(first);
        assert_eq!(ids(&queue.next_batch(SIZE).await.expect("writes")), [1, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_write_is_not_sent() {
        let queue = Queue::new(Arc::default());
        let mut replies = filled(&queue, &[1, 2, 3]);
        replies.remove(1);
        assert_eq!(ids(&queue.next_batch(SIZE).await.expect("writes")), [1, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_bounded_and_the_rest_waits() {
        let queue = Queue::new(Arc::default());
        let _replies = filled(&queue, &[1, 2, 3, 4, 5, 6]);
        let first = queue.next_batch(SIZE).await.expect("writes");
        let second = queue.next_batch(SIZE).await.expect("writes");
        assert_eq!((first.len(), second.len()), (4, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_writes_are_left_to_connections_without_a_minimum() {
        let queue = Queue::new(Arc::default());
        let large = BatchSize { rows_min: MANY, rows_max: 64, bytes_max: 1 << 20 };
        let waits =
            async || tokio::time::timeout(Duration::from_millis(20), queue.next_batch(large)).await.is_err();
        let few: Vec<u8> = (1..16).collect();
        let _replies = filled(&queue, &few);
        assert!(waits().await, "{} writes wait", few.len());
        let _one_more = filled(&queue, &[16]);
        assert!(!waits().await, "{MANY} writes wait");
        let _last = filled(&queue, &[17]);
        assert!(waits().await, "one write waits");
        queue.close();
        assert_eq!(queue.next_batch(large).await.map(|batch| batch.len()), Some(1), "nothing is left behind");
        assert!(queue.next_batch(large).await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_drains_and_ends() {
        let queue = Queue::new(Arc::default());
        let _replies = filled(&queue, &[1]);
        queue.close();
        let (job, _answer) = Job::new(CommandId::from_bytes([2; 32]), Change::RemoveMarker);
        assert_eq!(queue.push(job).map_err(|error| error.kind()), Err(Kind::Closed));
        assert_eq!(queue.next_batch(SIZE).await.map(|batch| batch.len()), Some(1));
        assert!(queue.next_batch(SIZE).await.is_none());
    }
}
