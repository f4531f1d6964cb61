//! Moves pages from the log into the file, in a separate thread.
//!
//! Contents: a thread with its own connection that sleeps while nothing is written, and the one case in which
//! the writer has to stop for it. A commit never waits for a checkpoint.

use super::files::OpenFiles;
use super::open::with_short_waits;
use crate::clock;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The pause between two checkpoints.
const INTERVAL: Duration = Duration::from_millis(20);
/// How often emptying the log is tried while readers hold it, one interval apart.
const EMPTY_TRIES_MAX: usize = 100;
/// The pause between later tries, until one succeeds. Each of them can stop the writer for a moment.
const EMPTY_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// State shared by the writer, the checkpointer and the closing of the store.
pub(super) struct CheckpointState {
    signals: Mutex<Signals>,
    changed: Condvar,
    /// Held during a checkpoint, so that only one runs at a time.
    at_work: Mutex<()>,
    /// Frames in the log, as of the last checkpoint.
    frames: AtomicU64,
    /// The length of the log at which the writer stops next.
    frames_next: AtomicU64,
    frames_max: u64,
    files: Arc<OpenFiles>,
    /// Why pages are no longer moved.
    failed: OnceLock<String>,
}

#[derive(Default)]
struct Signals {
    wrote: bool,
    closing: bool,
    /// The callers that wait for the log to be emptied.
    emptying: Vec<oneshot::Sender<bool>>,
    /// When to try again to empty the log, because it may have bytes of an erased entry.
    empty_again_at: Option<Duration>,
}

impl Signals {
    fn is_idle(&self) -> bool {
        !self.wrote && !self.closing && self.emptying.is_empty()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CheckpointState {
    pub(super) fn new(frames_max: u64, files: Arc<OpenFiles>) -> Self {
        Self {
            signals: Mutex::default(),
            changed: Condvar::new(),
            at_work: Mutex::default(),
            frames: AtomicU64::new(0),
            frames_next: AtomicU64::new(frames_max),
            frames_max,
            files,
            failed: OnceLock::new(),
        }
    }

    /// The disk error after which the log is left unchanged until the store is opened again.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Reports new pages in the log.
    pub(super) fn wrote(&self) {
        let mut signals = lock(&self.signals);
        if !signals.wrote {
            signals.wrote = true;
            self.changed.notify_all();
        }
    }

    /// Moves everything into the file and truncates the log, so that no replaced page stays in it. Answers
    /// whether that succeeded; readers in the log can prevent it, and then it is tried again until it does.
    /// There is no answer if the store is closed first.
    pub(super) fn empty_log(&self) -> oneshot::Receiver<bool> {
        let (sender, answer) = oneshot::channel();
        lock(&self.signals).emptying.push(sender);
        self.changed.notify_all();
        answer
    }

    /// The same, without an answer, and not at once.
    pub(super) fn empty_log_later(&self) {
        lock(&self.signals).empty_again_at = Some(clock::uptime().saturating_add(EMPTY_AGAIN_AFTER));
        self.changed.notify_all();
    }

    /// The store is being closed.
    pub(super) fn close(&self) {
        lock(&self.signals).closing = true;
        self.changed.notify_all();
    }

    /// Called by the writer between two batches. Under steady load, the log is never moved completely, so it
    /// is never restarted: beyond a limit, the writer stops for that.
    pub(super) fn keep_log_short(&self, connection: &Connection) {
        let frames = self.frames.load(Ordering::Relaxed);
        if frames < self.frames_next.load(Ordering::Relaxed) {
            return;
        }
        if self.failure().is_some() {
            // Also turn off SQLite's own checkpoints. Once is enough.
            drop(connection.pragma_update(None, "wal_autocheckpoint", 0));
            self.frames_next.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        // While the other thread is moving pages, do not wait for it: afterwards, little is left to move.
        let _at_work = match self.at_work.try_lock() {
            Ok(at_work) => at_work,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let next = match self.checkpoint(connection, "RESTART") {
            Some(progress) if !progress.busy => {
                self.frames.store(0, Ordering::Relaxed);
                self.frames_max
            }
            _ if self.failure().is_some() => 0,
            // A reader blocks the log. Stopping again for every batch would not help.
            _ => frames + self.frames_max,
        };
        self.frames_next.store(next, Ordering::Relaxed);
    }

    /// Runs until the store is closed; then waits for the `others`, and leaves a file without a log.
    pub(super) fn run(&self, connection: &Connection, others: Vec<JoinHandle<()>>) {
        let mut is_settled = false;
        loop {
            let mut signals = self.next_signals();
            if signals.closing {
                break;
            }
            signals.wrote = false;
            let emptying = std::mem::take(&mut signals.emptying);
            let is_due = signals.empty_again_at.is_some_and(|at| at <= clock::uptime());
            drop(signals);
            if !emptying.is_empty() || is_due {
                let tries_max = if emptying.is_empty() { 1 } else { EMPTY_TRIES_MAX };
                let is_empty = self.cut_log(connection, tries_max);
                for sender in emptying {
                    let _ = sender.send(is_empty);
                }
            }
            {
                let _at_work = lock(&self.at_work);
                // A failure is retried after the next write; until then, the log has everything.
                let progress = self.checkpoint(connection, "PASSIVE");
                if let Some(frames) = progress.and_then(|progress| progress.frames) {
                    self.frames.store(frames, Ordering::Relaxed);
                    if frames < self.frames_max {
                        // The log was restarted, so reset the limit.
                        self.frames_next.store(self.frames_max, Ordering::Relaxed);
                    }
                }
                if self.files.check_open().is_err() && !is_settled {
                    is_settled = self.settle_lost(connection);
                }
            }
            let waited =
                self.changed.wait_timeout_while(lock(&self.signals), INTERVAL, |signals| !signals.closing);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        for other in others {
            drop(other.join());
        }
        if self.files.check_read().is_ok() {
            self.checkpoint(connection, "TRUNCATE");
        } else if !is_settled {
            self.settle_lost(connection);
        }
        if self.failure().is_some() || self.files.has_another_log() {
            // The last connection to close would remove the log.
            drop(connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true));
        }
    }

    /// Waits until there is something to do.
    fn next_signals(&self) -> MutexGuard<'_, Signals> {
        let mut signals = lock(&self.signals);
        while signals.is_idle() {
            signals = match signals.empty_again_at {
                None => self.changed.wait(signals).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let left = at.saturating_sub(clock::uptime());
                    if left.is_zero() {
                        break;
                    }
                    self.changed.wait_timeout(signals, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        signals
    }

    /// Empties the log, or remembers that it has to be done later.
    fn cut_log(&self, connection: &Connection, tries_max: usize) -> bool {
        for _ in 0..tries_max {
            let progress = {
                let _at_work = lock(&self.at_work);
                self.checkpoint(connection, "TRUNCATE")
            };
            match progress {
                Some(progress) if !progress.busy => {
                    self.frames.store(0, Ordering::Relaxed);
                    lock(&self.signals).empty_again_at = None;
                    return true;
                }
                Some(_) => {}
                None => break,
            }
            let waited =
                self.changed.wait_timeout_while(lock(&self.signals), INTERVAL, |signals| !signals.closing);
            if waited.unwrap_or_else(PoisonError::into_inner).0.closing {
                return false;
            }
        }
        self.empty_log_later();
        false
    }

    /// The files were renamed or removed. Moves the log into the file, wherever it is now, and empties the
    /// log. So a file that is put back is complete, and another file with its name is not read with a foreign
    /// log. Does nothing if another process has created a log. Returns whether it succeeded.
    fn settle_lost(&self, connection: &Connection) -> bool {
        if self.failure().is_some() || self.files.has_another_log() {
            return true;
        }
        self.moved(connection, "TRUNCATE").is_some_and(|progress| !progress.busy)
    }

    /// Runs a checkpoint; `None` if there was none. Never after a disk error: lost pages of the file are
    /// still in the log, which a later checkpoint would discard. Also not if the file's name leads elsewhere:
    /// the log may have pages of another process that opened it by that name.
    fn checkpoint(&self, connection: &Connection, mode: &str) -> Option<Progress> {
        if self.failure().is_some() || self.files.check_read().is_err() {
            return None;
        }
        self.moved(connection, mode)
    }

    fn moved(&self, connection: &Connection, mode: &str) -> Option<Progress> {
        match with_short_waits(connection, || checkpoint(connection, mode)) {
            Ok(progress) => Some(progress),
            Err(error) => {
                if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
                    drop(self.failed.set(error.to_string()));
                    // Notifies the writer.
                    self.frames_next.store(0, Ordering::Relaxed);
                }
                None
            }
        }
    }
}

struct Progress {
    busy: bool,
    /// Frames in the log; unknown while another process runs a checkpoint.
    frames: Option<u64>,
}

fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<Progress> {
    connection.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?.query_row([], |row| {
        Ok(Progress { busy: row.get::<_, i64>(0)? != 0, frames: u64::try_from(row.get::<_, i64>(1)?).ok() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::open::File;
    use semel_test_support::ScratchDir;

    const FRAMES_MAX: u64 = 100;

    /// A file with an overlong log, and the state that knows it.
    fn long_log(name: &str) -> (ScratchDir, Connection, CheckpointState) {
        let directory = ScratchDir::new(name);
        let connection = Connection::open(directory.join("file")).expect("it opens");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x); \
                 INSERT INTO t VALUES (zeroblob(2000000))",
            )
            .expect("written");
        let file = File::existing(&directory.join("file"), 0).expect("it is there");
        let checkpoints =
            CheckpointState::new(FRAMES_MAX, Arc::new(OpenFiles::of(&file).expect("they are there")));
        checkpoints.frames.store(frames(&connection), Ordering::Relaxed);
        assert!(frames(&connection) > FRAMES_MAX);
        (directory, connection, checkpoints)
    }

    /// After one more write, because the next write restarts the log.
    fn frames(connection: &Connection) -> u64 {
        connection.execute_batch("INSERT INTO t VALUES (1)").expect("written");
        checkpoint(connection, "NOOP").expect("asked").frames.expect("nobody else takes one")
    }

    #[test]
    fn the_writer_restarts_a_long_log() {
        let (_directory, connection, checkpoints) = long_log("restart");
        checkpoints.keep_log_short(&connection);
        assert!(frames(&connection) < FRAMES_MAX);
        assert_eq!(checkpoints.frames_next.load(Ordering::Relaxed), FRAMES_MAX);
    }

    #[test]
    fn the_log_is_kept_after_a_disk_error_until_reopening() {
        let (directory, connection, checkpoints) = long_log("broken");
        let log = directory.join("file-wal");
        let complete = std::fs::read(&log).expect("read");
        // The pages to move cannot be read.
        std::fs::OpenOptions::new().write(true).open(&log).and_then(|log| log.set_len(100)).expect("cut");
        assert!(checkpoints.checkpoint(&connection, "PASSIVE").is_none());
        assert!(
            checkpoints.failure().is_some_and(|reason| reason.contains("I/O")),
            "{:?}",
            checkpoints.failure()
        );
        std::fs::write(&log, &complete).expect("the disk has recovered");

        checkpoints.keep_log_short(&connection);
        assert!(checkpoints.checkpoint(&connection, "PASSIVE").is_none());
        assert!(frames(&connection) > FRAMES_MAX, "the log is not restarted");
        let net: i64 =
            connection.pragma_query_value(None, "wal_autocheckpoint", |row| row.get(0)).expect("asked");
        assert_eq!(net, 0);
        checkpoints.close();
        checkpoints.run(&connection, Vec::new());
        drop(connection);
        let kept = std::fs::read(&log).expect("it is there");
        assert!(kept.starts_with(&complete), "nothing of it was overwritten, even at the end");
    }

    #[test]
    fn a_skipped_checkpoint_reports_no_log_size() {
        // The same answer as while another process runs a checkpoint: -1 frames.
        let connection = Connection::open_in_memory().expect("SQLite works");
        assert_eq!(checkpoint(&connection, "PASSIVE").expect("asked").frames, None);
    }

    #[test]
    fn a_writer_does_not_wait_for_a_running_checkpoint() {
        let (_directory, connection, checkpoints) = long_log("under-way");
        let at_work = lock(&checkpoints.at_work);
        checkpoints.keep_log_short(&connection);
        assert!(frames(&connection) > FRAMES_MAX);
        drop(at_work);
        checkpoints.keep_log_short(&connection);
        assert!(frames(&connection) < FRAMES_MAX, "it returns to it");
    }

    #[test]
    fn a_lasting_reader_is_waited_for_only_after_further_growth() {
        let (directory, connection, checkpoints) = long_log("held");
        let reader = Connection::open(directory.join("file")).expect("it opens");
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").expect("a snapshot");
        connection.execute_batch("INSERT INTO t VALUES (2)").expect("written");
        let before = checkpoints.frames.load(Ordering::Relaxed);
        checkpoints.keep_log_short(&connection);
        assert_eq!(checkpoints.frames_next.load(Ordering::Relaxed), before + FRAMES_MAX);
        assert!(frames(&connection) > FRAMES_MAX, "the reader keeps it");
        reader.execute_batch("COMMIT").expect("it ends");
        checkpoints.frames.store(before + FRAMES_MAX, Ordering::Relaxed);
        checkpoints.keep_log_short(&connection);
        assert!(frames(&connection) < FRAMES_MAX);
    }
}
