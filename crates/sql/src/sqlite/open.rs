//! Connections and their settings.
//!
//! Contents: how the file is opened. A file that may be locked is never opened without SQLite: POSIX drops
//! all locks of a process on a file when it closes any descriptor of it.

use super::fault::Fault;
use super::schema;
use crate::clock;
use rusqlite::{Connection, ErrorCode, MAIN_DB, OpenFlags};
use semel_core::store::{Error, Kind, StoreSize};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use thiserror::Error as ThisError;

/// Older versions can damage a file if the log is restarted while a reader begins.
const VERSION_MIN: i32 = 3_051_003;
/// `PRAGMA synchronous`: every commit waits for the disk.
pub(super) const FULL: i64 = 2;
const OPENING: &str = "opening the SQLite store";

/// How long to wait for another process's lock before the answer is "unavailable".
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// The same for a write after the store is open: requests wait for it, and give up soon after. A write that
/// is given up here was certainly not written; one that a request gives up may still arrive.
const WRITE_WAIT: Duration = Duration::from_millis(700);
/// How long writing pauses for readers that prevent a restart of the log.
const RESTART_WAIT: Duration = Duration::from_millis(50);
/// The pause between two tries. It can take much longer on a machine that is slow to wake, so waits are measured and tries
/// are not counted.
const BUSY_STEP: Duration = Duration::from_millis(1);

/// SQLite's name for a database without a file.
pub(super) const IN_MEMORY: &str = ":memory:";

/// Pages are small, because each random write to an index puts a whole page into the log.
pub(super) const PAGE_BYTES: u32 = 4096;
/// Enough for the pages of one batch and the inner pages of large indexes. More does not help: after a
/// transaction that split a page, SQLite scans its whole cache, and other pages come from the system's cache.
const WRITER_CACHE_KIB: i32 = 16 * 1024;
const READER_CACHE_KIB: i32 = 8 * 1024;

/// A file and how it is opened.
#[derive(Debug, Clone)]
pub(super) struct File {
    /// Absolute and without links.
    pub(super) path: PathBuf,
    /// The given path, made absolute: what the next start opens.
    pub(super) given: PathBuf,
    pub(super) wal_bytes_max: u64,
}

impl File {
    /// The file at `path`, created if there is none.
    pub(super) fn new(path: &Path, wal_bytes_max: u64) -> Result<Self, Error> {
        let placed = create_or_find(path)?;
        Self::placed(placed, path, wal_bytes_max)
    }

    /// The file at `path`, which must exist.
    pub(super) fn existing(path: &Path, wal_bytes_max: u64) -> Result<Self, Error> {
        let placed = path.canonicalize().map_err(|error| misplaced(path, &error))?;
        Self::placed(placed, path, wal_bytes_max)
    }

    fn placed(placed: PathBuf, path: &Path, wal_bytes_max: u64) -> Result<Self, Error> {
        let found = placed.metadata().map_err(|error| misplaced(path, &error))?;
        check_is_regular(path, &found).map_err(|cause| Error::new(Kind::Unfit, OPENING).because(cause))?;
        let given = std::path::absolute(path).map_err(|error| misplaced(path, &error))?;
        Ok(Self { path: placed, given, wal_bytes_max })
    }

    /// The writing connection; prepares the file.
    pub(super) fn writer(&self) -> Result<Connection, Error> {
        check_version()?;
        let mut connection = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        if connection.is_readonly(MAIN_DB).map_err(|error| Fault::nothing_written(OPENING, &error))? {
            let cause = format!("{} may not be written to by this user, or here", self.path.display());
            return Err(Error::new(Kind::ReadOnly, OPENING).because(cause));
        }
        // Before the first table; an existing file keeps its page size.
        self.set(&connection, "page_size", PAGE_BYTES)?;
        self.use_wal(&connection)?;
        schema::migrate(&mut connection)?;
        self.set(&connection, "synchronous", "FULL")?;
        let synchronous: i64 = connection
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .map_err(|error| self.failed(&error))?;
        if synchronous < FULL {
            let cause = format!("SQLite stays at synchronous={synchronous}, and would not wait for the disk");
            return Err(Error::new(Kind::Unfit, OPENING).because(cause));
        }
        // Only relevant on macOS, where fsync does not reach the disk.
        self.set(&connection, "fullfsync", true)?;
        // What is replaced or removed is overwritten with zeros: an erased response must not stay in a free
        // page.
        self.set(&connection, "secure_delete", true)?;
        self.set(&connection, "cache_size", -WRITER_CACHE_KIB)?;
        let pages = self.wal_bytes_max / u64::from(self.page_bytes(&connection)?);
        // Checkpoints run elsewhere; this is a safety net.
        self.set(&connection, "wal_autocheckpoint", i64::try_from(pages * 4).unwrap_or(i64::MAX))?;
        self.set(&connection, "journal_size_limit", i64::try_from(self.wal_bytes_max).unwrap_or(i64::MAX))?;
        self.settle(&connection)?;
        Ok(connection)
    }

    /// Syncs the current content of the file. A process that was killed while it waited for the disk leaves a
    /// complete transaction in the log that was never synced. The next process finds it there, and must not
    /// report it before it survives a power failure.
    ///
    /// With a separate descriptor: it needs no disk space and no lock. SQLite locks the file and the shared
    /// memory, never the log.
    fn settle(&self, connection: &Connection) -> Result<(), Error> {
        let sync = || -> io::Result<()> {
            std::fs::File::open(self.wal())?.sync_data()?;
            std::fs::File::open(directory(&self.path))?.sync_all()
        };
        sync().map_err(|error| Fault::new(Kind::Unavailable, OPENING, &error).about(&self.wal()))?;
        // Also move the pages into the file: if the sync of the dead process failed, a second sync of the
        // same bytes would not report it. And empty the log: the dead process may have erased a response that
        // is still in it.
        let emptied = with_short_waits(connection, || {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        });
        connection.busy_handler(Some(wait_for_others)).map_err(|error| self.failed(&error))?;
        match emptied {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) => {
                Err(self.failed(&error).into())
            }
            // For example, the disk is full, or somebody reads. The log has everything.
            _ => Ok(()),
        }
    }

    /// A connection for checkpoints.
    pub(super) fn checkpointer(&self) -> Result<Connection, Error> {
        let connection = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        self.set(&connection, "synchronous", "FULL")?;
        self.set(&connection, "fullfsync", true)?;
        self.set(&connection, "checkpoint_fullfsync", true)?;
        self.set(&connection, "wal_autocheckpoint", 0)?;
        Ok(connection)
    }

    /// A reading connection.
    pub(super) fn reader(&self) -> Result<Connection, Error> {
        let connection = self.open(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        self.set(&connection, "cache_size", -READER_CACHE_KIB)?;
        Ok(connection)
    }

    pub(super) fn page_bytes(&self, connection: &Connection) -> Result<u32, Error> {
        connection
            .pragma_query_value(None, "page_size", |row| row.get(0))
            .map_err(|error| self.failed(&error).into())
    }

    /// How many bytes the file and its log have.
    pub(super) fn size(&self) -> StoreSize {
        let bytes = |path: &Path| Some(std::fs::metadata(path).map_or(0, |found| found.len()));
        StoreSize { data_bytes: bytes(&self.path), log_bytes: bytes(&self.wal()) }
    }

    /// Whether anything is in the log.
    pub(super) fn has_log(&self) -> bool {
        std::fs::metadata(self.wal()).is_ok_and(|log| log.len() > 0)
    }

    /// The path of SQLite's log of this file.
    pub(super) fn wal(&self) -> PathBuf {
        self.beside("-wal")
    }

    /// The path of the index of that log, which the processes share as memory.
    pub(super) fn wal_index(&self) -> PathBuf {
        self.beside("-shm")
    }

    fn beside(&self, ending: &str) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(ending);
        name.into()
    }

    fn open(&self, flags: OpenFlags) -> Result<Connection, Error> {
        // Each connection belongs to one thread, so SQLite need not lock it. The path is absolute, because
        // SQLite may be built to read `file:` paths as URIs, despite the flags.
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&self.path, flags).map_err(|error| self.failed(&error))?;
        connection.busy_handler(Some(wait_for_others)).map_err(|error| self.failed(&error))?;
        Ok(connection)
    }

    fn set(&self, connection: &Connection, name: &str, value: impl rusqlite::ToSql) -> Result<(), Error> {
        // Some pragmas return their new value.
        connection
            .pragma_update_and_check(None, name, value, |_| Ok(()))
            .or_else(|error| if error == rusqlite::Error::QueryReturnedNoRows { Ok(()) } else { Err(error) })
            .map_err(|error| self.failed(&error).into())
    }

    /// Switches to the write-ahead log, which is a property of the file. SQLite does not wait if two
    /// processes switch at the same time.
    fn use_wal(&self, connection: &Connection) -> Result<(), Error> {
        let since = clock::uptime();
        let mode: String = loop {
            match connection.pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0)) {
                Ok(mode) => break mode,
                Err(error) if is_busy(&error) && pause_within(BUSY_WAIT, since) => {}
                Err(error) => return Err(self.failed(&error).into()),
            }
        };
        if mode != "wal" {
            let cause = format!("the file system gives no write-ahead log (journal mode {mode})");
            return Err(Error::new(Kind::Unfit, OPENING).because(cause));
        }
        Ok(())
    }

    fn failed(&self, error: &rusqlite::Error) -> Fault {
        let mut fault = Fault::nothing_written(OPENING, error);
        if error.sqlite_error_code() == Some(ErrorCode::CannotOpen) && is_read_only(&self.path) {
            fault.kind = Kind::ReadOnly;
        }
        fault.about(&self.path)
    }
}

fn check_version() -> Result<(), Error> {
    let number = rusqlite::version_number();
    if number >= VERSION_MIN {
        return Ok(());
    }
    let version = rusqlite::version();
    let cause = format!("SQLite {version} is linked; before 3.51.3 a write-ahead log can damage its file");
    Err(Error::new(Kind::Unfit, OPENING).because(cause))
}

/// The canonical path of the file, which exists from here on: absolute, so that it is never read as a URI and
/// does not depend on the working directory, and without links, because SQLite puts the log next to their
/// target.
fn create_or_find(path: &Path) -> Result<PathBuf, Error> {
    // If two callers in one process open the store at the same time, the one that creates the file closes it
    // before the other can lock it.
    static CREATING: Mutex<()> = Mutex::new(());
    if path.as_os_str().is_empty() || path == Path::new(IN_MEMORY) {
        let cause = format!("`{}` names no file, and a store has to outlive its process", path.display());
        return Err(Error::new(Kind::Unfit, OPENING).because(cause));
    }
    let _creating = CREATING.lock().unwrap_or_else(PoisonError::into_inner);
    let placed = match path.canonicalize() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create(path).and_then(|()| path.canonicalize())
        }
        found => found,
    };
    placed.map_err(|error| misplaced(path, &error))
}

/// Refuses what is no file: to open a named pipe waits for its other end, and a device may have no end.
pub(super) fn check_is_regular(path: &Path, found: &std::fs::Metadata) -> Result<(), NotRegular> {
    if found.is_file() {
        return Ok(());
    }
    #[cfg(unix)]
    let is_pipe = std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type());
    #[cfg(not(unix))]
    let is_pipe = false;
    let kind = match (found.is_dir(), is_pipe) {
        (true, _) => "a directory",
        (_, true) => "a named pipe",
        _ => "a device or a socket",
    };
    Err(NotRegular { path: path.to_owned(), kind })
}

/// What a store cannot be in.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error("{path} is not a regular file: it is {kind}")]
pub struct NotRegular {
    /// The path.
    pub path: PathBuf,
    /// What is there, with its article.
    pub kind: &'static str,
}

fn misplaced(path: &Path, error: &io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Kind::ReadOnly,
        io::ErrorKind::StorageFull => Kind::Full,
        _ => Kind::Unavailable,
    };
    Fault::new(kind, OPENING, error).about(path).into()
}

/// The file contains stored answers and the hashing secret, so it must never be readable by others. Its log
/// has the same permissions.
fn create(path: &Path) -> io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        // Another process was faster; or it is a dangling link, which fails when it is followed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => created.map(drop),
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Whether the file system of the file is read-only.
fn is_read_only(path: &Path) -> bool {
    rustix::fs::statvfs(directory(path))
        .is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Another process has the lock: waits a little, and returns whether to try again. The pauses are equal: with
/// SQLite's own handler, a process that has waited long would try least often.
fn wait_for_others(tries: i32) -> bool {
    wait_up_to(BUSY_WAIT, tries)
}

/// The same for writes that requests wait for.
fn wait_to_write(tries: i32) -> bool {
    wait_up_to(WRITE_WAIT, tries)
}

/// Pauses, and returns true, until a wait has lasted for `limit`. SQLite counts the tries of each wait from 0.
fn wait_up_to(limit: Duration, tries: i32) -> bool {
    thread_local! {
        /// When this thread's wait began. It waits for one lock at a time.
        static SINCE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }
    if tries == 0 {
        SINCE.set(clock::uptime());
    }
    pause_within(limit, SINCE.get())
}

/// Pauses, and returns true, unless `limit` has passed since the uptime `since`.
fn pause_within(limit: Duration, since: Duration) -> bool {
    let again = clock::uptime().saturating_sub(since) < limit;
    if again {
        std::thread::sleep(BUSY_STEP);
    }
    again
}

/// Limits the writing connection's waits to the time that requests wait for it.
pub(super) fn limit_write_waits(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_handler(Some(wait_to_write))
}

/// Runs `work` on a connection that gives up soon if it is blocked.
pub(super) fn with_short_waits<T>(
    connection: &Connection,
    work: impl FnOnce() -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    fn wait(tries: i32) -> bool {
        wait_up_to(RESTART_WAIT, tries)
    }
    connection.busy_handler(Some(wait))?;
    let result = work();
    limit_write_waits(connection)?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pause of a millisecond can take much longer on a machine that is slow to wake.
    #[test]
    fn a_wait_ends_by_time_and_not_by_tries() {
        let long = Duration::MAX;
        assert!(wait_up_to(long, 0) && wait_up_to(long, i32::MAX));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!wait_up_to(Duration::from_millis(5), 1), "the wait began with try 0");
        assert!(wait_up_to(long, 0) && wait_up_to(long, 1), "another wait");
    }
}
