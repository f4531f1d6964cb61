//! Moves what was written from the log into the file, beside the writer.
//!
//! What lives here: a thread with a connection of its own that sleeps while nothing is written, and the one case in which
//! the writer itself has to stop for it. What must never: a checkpoint on the way of a commit, or a wake-up without a
//! reason.

use super::open::briefly;
use rusqlite::Connection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a checkpoint lets more writes gather before the next.
const INTERVAL: Duration = Duration::from_millis(20);

/// What the writer, the checkpointer and whoever closes the store tell each other.
pub(super) struct Pulse {
    told: Mutex<Told>,
    changed: Condvar,
    /// Held while a checkpoint is taken, so that two do not meet.
    at_work: Mutex<()>,
    /// Frames in the log, as of the last checkpoint.
    frames: AtomicU64,
    /// The next length of the log at which the writer stops.
    frames_next: AtomicU64,
    frames_max: u64,
}

#[derive(Default)]
struct Told {
    wrote: bool,
    closing: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pulse {
    pub(super) fn new(frames_max: u64) -> Self {
        Self {
            told: Mutex::default(),
            changed: Condvar::new(),
            at_work: Mutex::default(),
            frames: AtomicU64::new(0),
            frames_next: AtomicU64::new(frames_max),
            frames_max,
        }
    }

    /// There is something to move.
    pub(super) fn wrote(&self) {
        let mut told = lock(&self.told);
        if !told.wrote {
            told.wrote = true;
            self.changed.notify_all();
        }
    }

    /// The store is being closed.
    pub(super) fn close(&self) {
        lock(&self.told).closing = true;
        self.changed.notify_all();
    }

    /// Called by the writer between two batches. Under steady load there is never a moment at which everything in the log
    /// has been moved, so that it is never begun anew: beyond a limit, the writer makes that moment.
    pub(super) fn keep_log_short(&self, connection: &Connection) {
        let frames = self.frames.load(Ordering::Relaxed);
        if frames < self.frames_next.load(Ordering::Relaxed) {
            return;
        }
        let _at_work = lock(&self.at_work);
        let restarted = briefly(connection, || checkpoint(connection, "RESTART"));
        let next = match restarted {
            Ok(progress) if !progress.busy => {
                self.frames.store(0, Ordering::Relaxed);
                self.frames_max
            }
            // A reader stays where it is. Stopping again for every batch would not move it.
            _ => frames + self.frames_max,
        };
        self.frames_next.store(next, Ordering::Relaxed);
    }

    /// Serves until the store is closed; then waits for the `others`, and leaves a file without a log.
    pub(super) fn run(&self, connection: &Connection, others: Vec<JoinHandle<()>>) {
        loop {
            let mut told = lock(&self.told);
            while !told.wrote && !told.closing {
                told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
            }
            if told.closing {
                break;
            }
            told.wrote = false;
            drop(told);
            {
                let _at_work = lock(&self.at_work);
                // What fails here is tried again after the next write; until then the log has it all.
                if let Ok(progress) = checkpoint(connection, "PASSIVE") {
                    self.frames.store(progress.frames, Ordering::Relaxed);
                    if progress.frames < self.frames_max {
                        // It was begun anew, and what a reader once cost is forgotten.
                        self.frames_next.store(self.frames_max, Ordering::Relaxed);
                    }
                }
            }
            let nap = self.changed.wait_timeout_while(lock(&self.told), INTERVAL, |told| !told.closing);
            drop(nap.unwrap_or_else(PoisonError::into_inner));
        }
        for other in others {
            drop(other.join());
        }
        drop(briefly(connection, || checkpoint(connection, "TRUNCATE")));
    }
}

struct Progress {
    busy: bool,
    frames: u64,
}

fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Progress> {
    connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?.query_row([], |row| {
        Ok(Progress {
            busy: row.get::<_, i64>(0)? != 0,
            frames: u64::try_from(row.get::<_, i64>(1)?).unwrap_or(0),
        })
    })
}
