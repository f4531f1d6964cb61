//! The connections that write.

use super::changes::{Changes, answers};
use super::doubts::Doubts;
use super::fault::{Fault, Remedy};
use super::job::{Answer, Job};
use super::queue::{BatchSize, MANY, Queue};
use super::slot::{Slot, unconnected};
use super::time::ServerTime;
use super::waiters::Waiters;
use crate::clock::uptime;
use semel_core::store::{Error, Kind, Written};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tracing::warn;

/// How much one statement writes.
const BATCH: BatchSize = BatchSize { rows_min: 1, rows_max: 128, bytes_max: 4 << 20 };
/// How much a connection writes before others help: few large batches cost the server less than many small
/// ones.
const LARGE_BATCH: BatchSize = BatchSize { rows_min: MANY, ..BATCH };
/// A write whose row is locked is sent alone.
const SINGLE: BatchSize = BatchSize { rows_min: 1, rows_max: 1, bytes_max: 0 };
/// How long a batch waits for a locked row. Another node's commit takes less.
const LOCK_WAIT: &str = "50ms";
/// How long parts of a batch with a locked row wait.
const LOCK_WAIT_IN_PART: &str = "2ms";
/// How long a write waits alone.
const LOCK_WAIT_ALONE: &str = "2s";
/// The same, with time for an answer.
pub(super) const PATIENCE_WHEN_LOCKED: Duration = Duration::from_secs(4);
/// How long after its row was found locked a write is tried for the last time, without waiting: if many rows
/// are locked, each caller learns why well before the engine gives up on the store.
const LOCKED_FOR_MAX: Duration = Duration::from_secs(4);
/// How often locked rows are logged.
const LOCKED_LOGGED_EVERY: Duration = Duration::from_mins(1);
/// How often a write is repeated after a conflict with another transaction.
const REPEATS_MAX: u32 = 5;
pub(super) const WRITING: &str = "writing to PostgreSQL";

/// What the writers of a store share.
pub(super) struct Writing {
    pub(super) queue: Queue,
    /// Writes to locked rows.
    pub(super) locked: Queue,
    pub(super) time: ServerTime,
    pub(super) waiters: Arc<Waiters>,
    pub(super) doubts: Arc<Doubts>,
    pub(super) sql: String,
    /// When locked rows were last logged.
    pub(super) locked_logged_at: Mutex<Option<Duration>>,
}

/// One connection that writes.
#[derive(Clone)]
pub(super) struct Writer {
    pub(super) slot: Arc<Slot>,
    pub(super) shared: Arc<Writing>,
}

impl Writer {
    /// Writes batches until the queue is closed and empty.
    pub(super) async fn run(self) {
        self.run_with(BATCH).await;
    }

    /// The same, only if many writes wait.
    pub(super) async fn run_for_many(self) {
        self.run_with(LARGE_BATCH).await;
    }

    async fn run_with(self, size: BatchSize) {
        // A batch on a connection that does not answer.
        let mut stalled: Option<JoinHandle<()>> = None;
        while let Some(batch) = self.shared.queue.next_batch(size).await {
            let writer = self.clone();
            let mut applying = tokio::spawn(async move { writer.apply(batch).await });
            tokio::select! {
                _ = &mut applying => {}
                () = self.slot.silence() => {
                    if let Some(earlier) = stalled.replace(applying) {
                        drop(earlier.await);
                    }
                }
            }
        }
        if let Some(last) = stalled {
            drop(last.await);
        }
    }

    /// Writes to locked rows, until that queue is closed and empty.
    pub(super) async fn run_for_locked(self) {
        while let Some(batch) = self.shared.locked.next_batch(SINGLE).await {
            let is_late = |job: &Job| {
                job.locked_since.is_some_and(|since| uptime().saturating_sub(since) >= LOCKED_FOR_MAX)
            };
            let lock_wait = if batch.iter().any(is_late) { LOCK_WAIT_IN_PART } else { LOCK_WAIT_ALONE };
            if let Err((batch, fault)) = self.send(batch, lock_wait).await {
                if fault.remedy == Remedy::WaitForLock {
                    self.log_locked(&fault);
                }
                report(batch, &fault);
            }
        }
    }

    /// Logs at most one line a minute, however many writes are affected.
    fn log_locked(&self, fault: &Fault) {
        let mut logged_at = self.shared.locked_logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|at| uptime().saturating_sub(at) >= LOCKED_LOGGED_EVERY) {
            *logged_at = Some(uptime());
            warn!(error = %fault.error(WRITING), "records are locked in the database; requests for them are refused with 503");
        }
    }

    async fn apply(&self, batch: Vec<Job>) {
        let mut parts = vec![(batch, LOCK_WAIT)];
        while let Some((part, lock_wait)) = parts.pop() {
            let Err((mut part, fault)) = self.send(part, lock_wait).await else { continue };
            let lock_wait = if fault.remedy == Remedy::WaitForLock { LOCK_WAIT_IN_PART } else { lock_wait };
            match fault.remedy {
                Remedy::Report => report(part, &fault),
                _ if part.len() > 1 => {
                    let second = part.split_off(part.len() / 2);
                    parts.push((second, lock_wait));
                    parts.push((part, lock_wait));
                }
                Remedy::WaitForLock => part.into_iter().for_each(|job| self.wait_for_lock(job)),
                Remedy::Repeat if part.iter().all(|job| job.repeats < REPEATS_MAX) => {
                    for job in &mut part {
                        job.repeats += 1;
                    }
                    parts.push((part, lock_wait));
                }
                Remedy::Repeat | Remedy::Split => report(part, &fault),
            }
        }
    }

    /// Leaves a write to the connections for locked rows, so that it delays no others.
    fn wait_for_lock(&self, mut job: Job) {
        job.locked_since.get_or_insert_with(uptime);
        // If the queue is closed or full, dropping the write notifies its caller.
        drop(self.shared.locked.push(job));
    }

    /// Sends a batch and answers all its callers, unless nothing was written and there is a remedy.
    async fn send(&self, mut batch: Vec<Job>, lock_wait: &'static str) -> Result<(), (Vec<Job>, Fault)> {
        let seat = match self.slot.seat().await {
            Ok(seat) => seat,
            Err(error) if self.slot.is_stuck() => {
                let fault = unconnected(&error);
                for job in batch {
                    job.answer(Ok(Answer::Unsent(fault.clone())));
                }
                return Ok(());
            }
            Err(error) => return Err((batch, unconnected(&error))),
        };
        // It may have taken long to connect. A write that is sent after its caller has given up helps nobody.
        batch.retain(|job| job.is_awaited() && job.sending.begin());
        if batch.is_empty() {
            return Ok(());
        }
        let sent = {
            let changes = Changes::of(&batch, lock_wait);
            let answered = seat.write(&self.shared.sql, &changes.parameters()).await;
            answered.and_then(|rows| answers(&batch, &rows, &self.shared.time))
        };
        drop(seat);
        match sent {
            Ok(mut answers) => {
                self.doubt_refusals(&batch, &mut answers);
                self.shared.waiters.changed(batch.iter().map(|job| job.operation_id));
                batch.into_iter().zip(answers).for_each(|(job, answer)| job.answer(answer));
                Ok(())
            }
            Err(fault) => {
                if fault.kind == Kind::Ambiguous {
                    for job in &batch {
                        self.shared.doubts.add(job.operation_id);
                    }
                }
                Err((batch, fault))
            }
        }
    }

    /// A refusal may be caused by an earlier write of the same caller whose answer was lost, and which the
    /// standby does not have. So the entry is read again, with a commit in the same statement: a separate commit
    /// could be answered by another server, which never had the entry.
    fn doubt_refusals(&self, batch: &[Job], answers: &mut [Result<Answer, Error>]) {
        for (job, answer) in batch.iter().zip(answers) {
            let is_refused = matches!(answer, Ok(Answer::Written(Written::Refused(_))));
            if is_refused && self.shared.doubts.contains(job.operation_id) {
                *answer = Ok(Answer::RefusedInDoubt);
            }
        }
    }
}

fn report(batch: Vec<Job>, fault: &Fault) {
    for job in batch {
        job.answer(Err(fault.error(WRITING)));
    }
}
