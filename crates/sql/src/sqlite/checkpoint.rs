//! Moves pages from the log into the file, in a separate thread.
//!
//! Contents: a thread with its own connection that sleeps while nothing is written, and the one case in which the
//! writer has to stop for it. A commit never waits for a checkpoint.

use super::files::OpenFiles;
use super::open::briefly;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// The pause between two checkpoints.
const INTERVAL: Duration = Duration::from_millis(20);
/// How often emptying the log is tried while readers hold on to it, one interval apart.
const EMPTYING_TRIES: usize = 100;

/// State shared by the writer, the checkpointer and the closing of the store.
pub(super) struct Pulse {
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
    /// Those who wait for the log to be emptied.
    emptying: Vec<oneshot::Sender<bool>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pulse {
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

    /// Moves everything into the file and cuts the log to nothing, so that no replaced page stays in it. Answers whether that was
    /// done; readers that stay in the log can keep it from being cut. Nothing is answered where the store is closed first.
    pub(super) fn empty_log(&self) -> oneshot::Receiver<bool> {
        let (sender, answer) = oneshot::channel();
        lock(&self.signals).emptying.push(sender);
        self.changed.notify_all();
        answer
    }

    /// The store is being closed.
    pub(super) fn close(&self) {
        lock(&self.signals).closing = true;
        self.changed.notify_all();
    }

    /// Called by the writer between two batches. Under steady load, the log is never moved completely, so it is never
    /// restarted: beyond a limit, the writer stops for that.
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
            let mut signals = lock(&self.signals);
            while !signals.wrote && !signals.closing && signals.emptying.is_empty() {
                signals = self.changed.wait(signals).unwrap_or_else(PoisonError::into_inner);
            }
            if signals.closing {
                break;
            }
            signals.wrote = false;
            let emptying = std::mem::take(&mut signals.emptying);
            drop(signals);
            if !emptying.is_empty() {
                let is_empty = self.cut_log(connection);
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
            let nap =
                self.changed.wait_timeout_while(lock(&self.signals), INTERVAL, |signals| !signals.closing);
            drop(nap.unwrap_or_else(PoisonError::into_inner));
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

    fn cut_log(&self, connection: &Connection) -> bool {
        for _ in 0..EMPTYING_TRIES {
            let progress = {
                let _at_work = lock(&self.at_work);
                self.checkpoint(connection, "TRUNCATE")
            };
            match progress {
                Some(progress) if !progress.busy => {
                    self.frames.store(0, Ordering::Relaxed);
                    return true;
                }
                Some(_) => {}
                None => return false,
            }
            let nap =
                self.changed.wait_timeout_while(lock(&self.signals), INTERVAL, |signals| !signals.closing);
            if nap.unwrap_or_else(PoisonError::into_inner).0.closing {
                return false;
            }
        }
        false
    }

    /// The files were renamed or removed. Moves the log into the file, wherever it is now, and empties the log. So a
    /// file that is put back is complete, and another file with its name is not read with a foreign log. Does nothing
    /// if another process has created a log. Returns whether it succeeded.
    fn settle_lost(&self, connection: &Connection) -> bool {
        if self.failure().is_some() || self.files.has_another_log() {
            return true;
        }
        self.moved(connection, "TRUNCATE").is_some_and(|progress| !progress.busy)
    }

    /// Runs a checkpoint; `None` if there was none. Never after a disk error: lost pages of the file are still in the
    /// log, which a later checkpoint would discard. Also not if the file's name leads elsewhere: the log may have
    /// pages of another process that opened it by that name.
    fn checkpoint(&self, connection: &Connection, mode: &str) -> Option<Progress> {
        if self.failure().is_some() || self.files.check_read().is_err() {
            return None;
        }
        self.moved(connection, mode)
    }

    fn moved(&self, connection: &Connection, mode: &str) -> Option<Progress> {
        match briefly(connection, || checkpoint(connection, mode)) {
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

    /// A file whose log holds more than it should, and a pulse that knows.
    fn long_log(name: &str) -> (ScratchDir, Connection, Pulse) {
        let directory = ScratchDir::new(name);
        let connection = Connection::open(directory.join("file")).expect("it opens");
        connection
            .execute_batch(
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x); \
                 INSERT INTO t VALUES (zeroblob(2000000))",
            )
            .expect("written");
        let file = File::existing(&directory.join("file"), 0).expect("it is there");
        let pulse = Pulse::new(FRAMES_MAX, Arc::new(OpenFiles::of(&file).expect("they are there")));
        pulse.frames.store(frames(&connection), Ordering::Relaxed);
        assert!(frames(&connection) > FRAMES_MAX);
        (directory, connection, pulse)
    }

    /// After one more write, as the log is begun anew by anyone who writes next.
    fn frames(connection: &Connection) -> u64 {
        connection.execute_batch("INSERT INTO t VALUES (1)").expect("written");
        checkpoint(connection, "NOOP").expect("asked").frames.expect("nobody else takes one")
    }

    #[test]
    fn a_long_log_is_begun_anew_by_the_writer() {
        let (_directory, connection, pulse) = long_log("restart");
        pulse.keep_log_short(&connection);
        assert!(frames(&connection) < FRAMES_MAX);
        assert_eq!(pulse.frames_next.load(Ordering::Relaxed), FRAMES_MAX);
    }

    #[test]
    fn after_an_error_of_the_disk_the_log_is_kept_until_the_store_is_opened_again() {
        let (directory, connection, pulse) = long_log("broken");
        let log = directory.join("file-wal");
        let whole = std::fs::read(&log).expect("read");
        // What it has to move cannot be read.
        std::fs::OpenOptions::new().write(true).open(&log).and_then(|log| log.set_len(100)).expect("cut");
        assert!(pulse.checkpoint(&connection, "PASSIVE").is_none());
        assert!(pulse.failure().is_some_and(|why| why.contains("I/O")), "{:?}", pulse.failure());
        std::fs::write(&log, &whole).expect("the disk has recovered");

        pulse.keep_log_short(&connection);
        assert!(pulse.checkpoint(&connection, "PASSIVE").is_none());
        assert!(frames(&connection) > FRAMES_MAX, "the log is not begun anew");
        let net: i64 =
            connection.pragma_query_value(None, "wal_autocheckpoint", |row| row.get(0)).expect("asked");
        assert_eq!(net, 0);
        pulse.close();
        pulse.run(&connection, Vec::new());
        drop(connection);
        let kept = std::fs::read(&log).expect("it is there");
        assert!(kept.starts_with(&whole), "nothing of it was written over, also not at the end");
    }

    #[test]
    fn a_checkpoint_that_did_not_take_place_says_nothing_about_the_log() {
        // The same answer as while another process takes one: -1 frames.
        let connection = Connection::open_in_memory().expect("SQLite works");
        assert_eq!(checkpoint(&connection, "PASSIVE").expect("asked").frames, None);
    }

    #[test]
    fn a_writer_does_not_wait_for_a_checkpoint_that_is_under_way() {
        let (_directory, connection, pulse) = long_log("under-way");
        let at_work = lock(&pulse.at_work);
        pulse.keep_log_short(&connection);
        assert!(frames(&connection) > FRAMES_MAX);
        drop(at_work);
        pulse.keep_log_short(&connection);
        assert!(frames(&connection) < FRAMES_MAX, "it comes back to it");
    }

    #[test]
    fn a_reader_that_stays_is_not_waited_for_again_before_the_log_has_grown_as_much_once_more() {
        let (directory, connection, pulse) = long_log("held");
        let reader = Connection::open(directory.join("file")).expect("it opens");
        reader.execute_batch("BEGIN; SELECT count(*) FROM t").expect("a snapshot");
        connection.execute_batch("INSERT INTO t VALUES (2)").expect("written");
        let before = pulse.frames.load(Ordering::Relaxed);
        pulse.keep_log_short(&connection);
        assert_eq!(pulse.frames_next.load(Ordering::Relaxed), before + FRAMES_MAX);
        assert!(frames(&connection) > FRAMES_MAX, "the reader keeps it");
        reader.execute_batch("COMMIT").expect("it ends");
        pulse.frames.store(before + FRAMES_MAX, Ordering::Relaxed);
        pulse.keep_log_short(&connection);
        assert!(frames(&connection) < FRAMES_MAX);
    }
}
