//! Moves what was written from the log into the file, beside the writer.
//!
//! What lives here: a thread with a connection of its own that sleeps while nothing is written, and the one case in which
//! the writer itself has to stop for it. What must never: a checkpoint on the way of a commit, or a wake-up without a
//! reason.

use super::files::OpenFiles;
use super::open::briefly;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a checkpoint lets more writes gather before the next.
const INTERVAL: Duration = Duration::from_millis(20);
/// How often emptying the log is tried while readers hold on to it, one interval apart.
const EMPTYING_TRIES: usize = 100;

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
    files: Arc<OpenFiles>,
    /// Why nothing is moved any more.
    failed: OnceLock<String>,
}

#[derive(Default)]
struct Told {
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
            told: Mutex::default(),
            changed: Condvar::new(),
            at_work: Mutex::default(),
            frames: AtomicU64::new(0),
            frames_next: AtomicU64::new(frames_max),
            frames_max,
            files,
            failed: OnceLock::new(),
        }
    }

    /// The error of the disk after which the log is kept as it is, until the store is opened again.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// There is something to move.
    pub(super) fn wrote(&self) {
        let mut told = lock(&self.told);
        if !told.wrote {
            told.wrote = true;
            self.changed.notify_all();
        }
    }

    /// Moves everything into the file and cuts the log to nothing, so that no replaced page stays in it. Answers whether that was
    /// done; readers that stay in the log can keep it from being cut. Nothing is answered where the store is closed first.
    pub(super) fn empty_log(&self) -> oneshot::Receiver<bool> {
        let (sender, answer) = oneshot::channel();
        lock(&self.told).emptying.push(sender);
        self.changed.notify_all();
        answer
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
        if self.failure().is_some() {
            // Nor does SQLite by itself. Once is enough.
            drop(connection.pragma_update(None, "wal_autocheckpoint", 0));
            self.frames_next.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        // While the other one is moving pages, nobody waits for it: once it has, little is left to move.
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
            // A reader stays where it is. Stopping again for every batch would not move it.
            _ => frames + self.frames_max,
        };
        self.frames_next.store(next, Ordering::Relaxed);
    }

    /// Serves until the store is closed; then waits for the `others`, and leaves a file without a log.
    pub(super) fn run(&self, connection: &Connection, others: Vec<JoinHandle<()>>) {
        let mut is_settled = false;
        loop {
            let mut told = lock(&self.told);
            while !told.wrote && !told.closing && told.emptying.is_empty() {
                told = self.changed.wait(told).unwrap_or_else(PoisonError::into_inner);
            }
            if told.closing {
                break;
            }
            told.wrote = false;
            let emptying = std::mem::take(&mut told.emptying);
            drop(told);
            if !emptying.is_empty() {
                let is_empty = self.cut_log(connection);
                for sender in emptying {
                    let _ = sender.send(is_empty);
                }
            }
            {
                let _at_work = lock(&self.at_work);
                // What fails here is tried again after the next write; until then the log has it all.
                let progress = self.checkpoint(connection, "PASSIVE");
                if let Some(frames) = progress.and_then(|progress| progress.frames) {
                    self.frames.store(frames, Ordering::Relaxed);
                    if frames < self.frames_max {
                        // It was begun anew, and what a reader once cost is forgotten.
                        self.frames_next.store(self.frames_max, Ordering::Relaxed);
                    }
                }
                if self.files.check_open().is_err() && !is_settled {
                    is_settled = self.settle_lost(connection);
                }
            }
            let nap = self.changed.wait_timeout_while(lock(&self.told), INTERVAL, |told| !told.closing);
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
            // The last one to close would take the log away.
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
            let nap = self.changed.wait_timeout_while(lock(&self.told), INTERVAL, |told| !told.closing);
            if nap.unwrap_or_else(PoisonError::into_inner).0.closing {
                return false;
            }
        }
        false
    }

    /// The files were taken away. Moves what the log has into the file, wherever that is by now, and empties the log: whoever
    /// puts the file back has all of it, and whatever file has its name by now is not read together with a log that is not its own.
    /// Leaves everything alone where somebody else has begun a log. Says whether that is done.
    fn settle_lost(&self, connection: &Connection) -> bool {
        if self.failure().is_some() || self.files.has_another_log() {
            return true;
        }
        self.moved(connection, "TRUNCATE").is_some_and(|progress| !progress.busy)
    }

    /// A checkpoint; `None` where there was none. After an error of the disk there never is: what it may have lost of the
    /// file stands in the log, which the end of a later checkpoint would give up. Nor where the file's name leads elsewhere: in
    /// the log there may be pages of whoever opened it by that name.
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
                    // So that the writer comes to hear of it.
                    self.frames_next.store(0, Ordering::Relaxed);
                }
                None
            }
        }
    }
}

struct Progress {
    busy: bool,
    /// In the log; not known while another process takes a checkpoint.
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

    /// After one more write, as the log is begun anew by whoever writes next.
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
