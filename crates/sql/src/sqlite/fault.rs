//! What SQLite's errors mean.
//!
//! Contents: the translation into the error kinds of stores. Nothing is guessed: each function documents its
//! precondition.

use rusqlite::ErrorCode;
use semel_core::store::{Error, Kind};
use std::path::Path;

/// One cause, shared by all affected callers.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: Kind,
    context: &'static str,
    cause: String,
}

impl Fault {
    pub(super) fn new(kind: Kind, context: &'static str, cause: &(impl ToString + ?Sized)) -> Self {
        Self { kind, context, cause: cause.to_string() }
    }

    /// For an error after which certainly nothing was written: a read, a transaction that did not begin, or
    /// one without a commit.
    pub(super) fn nothing_written(context: &'static str, error: &rusqlite::Error) -> Self {
        Self::new(kind(error), context, error)
    }

    /// For an error of COMMIT, after which the transaction was rolled back.
    ///
    /// Only a full disk proves that nothing was written: it occurs while the log is written, and the part
    /// that makes a transaction valid is written last. Any other error may come from the sync after that, and
    /// a crash might still bring the transaction back.
    pub(super) fn of_commit(error: &rusqlite::Error, rolled_back: bool) -> Self {
        let full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
        let kind = if full && rolled_back { Kind::Full } else { Kind::Ambiguous };
        Self::new(kind, "committing to the SQLite store", error)
    }

    /// Adds the file.
    pub(super) fn about(mut self, path: &Path) -> Self {
        self.cause = format!("{}: {}", path.display(), self.cause);
        self
    }

    pub(super) fn error(&self) -> Error {
        Error::new(self.kind, self.context).because(self.cause.clone())
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        fault.error()
    }
}

/// The kind of an error without effects.
fn kind(error: &rusqlite::Error) -> Kind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Kind::Full,
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => Kind::ReadOnly,
        Some(ErrorCode::TooBig) => Kind::TooLarge,
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::CannotOpen
            | ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted,
        ) => Kind::Unavailable,
        // Damage, a file that is not a database, or tables of another shape.
        _ => Kind::Unfit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn error(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn after_a_failed_commit_only_a_full_disk_proves_nothing_written() {
        assert_eq!(Fault::of_commit(&error(ffi::SQLITE_FULL), true).kind, Kind::Full);
        assert_eq!(Fault::of_commit(&error(ffi::SQLITE_FULL), false).kind, Kind::Ambiguous);
        for code in [
            ffi::SQLITE_IOERR,
            ffi::SQLITE_IOERR_FSYNC,
            ffi::SQLITE_IOERR_WRITE,
            ffi::SQLITE_BUSY,
            ffi::SQLITE_READONLY,
            ffi::SQLITE_NOMEM,
            ffi::SQLITE_CORRUPT,
        ] {
            assert_eq!(Fault::of_commit(&error(code), true).kind, Kind::Ambiguous, "{code}");
        }
    }

    #[test]
    fn before_a_commit_every_error_is_classified_by_its_remedy() {
        for (code, expected) in [
            (ffi::SQLITE_FULL, Kind::Full),
            (ffi::SQLITE_READONLY, Kind::ReadOnly),
            (ffi::SQLITE_READONLY_DBMOVED, Kind::ReadOnly),
            (ffi::SQLITE_BUSY, Kind::Unavailable),
            (ffi::SQLITE_BUSY_RECOVERY, Kind::Unavailable),
            (ffi::SQLITE_IOERR_READ, Kind::Unavailable),
            (ffi::SQLITE_CANTOPEN, Kind::Unavailable),
            (ffi::SQLITE_TOOBIG, Kind::TooLarge),
            (ffi::SQLITE_CORRUPT, Kind::Unfit),
            (ffi::SQLITE_NOTADB, Kind::Unfit),
            (ffi::SQLITE_ERROR, Kind::Unfit),
        ] {
            assert_eq!(Fault::nothing_written("", &error(code)).kind, expected, "{code}");
        }
    }
}
