//! Archives records before they are deleted.
//!
//! The [`Archive`] that gets records before the sweeper deletes them or drops their outcome, and [`FileArchive`], which
//! appends them to a file as JSON lines. A record is deleted only after its line is durable. Records cannot be restored
//! from an archive: it is for people and their tools.
//!
//! With tombstones, a record is archived *twice*: with its outcome before that is dropped, and as a tombstone before
//! it is removed. It is also archived again if an answer was lost or the deletion lost a race. So a record can have
//! several lines: lines with the same `operation_id` and `version` are duplicates.

mod file;
mod line;
pub mod rfc3339;

pub use file::FileArchive;

use semel_core::id::CommandId;
use semel_core::record::Record;
use std::fmt;
use std::io;
use std::pin::Pin;

/// A record about to be deleted.
#[derive(Debug, Clone, Copy)]
pub struct Archived<'a> {
    /// Its command ID, to which its body was sealed.
    pub id: CommandId,
    /// The record. A sealed outcome stays sealed.
    pub record: &'a Record,
}

/// The future of an archive's answer.
pub type ArchiveFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// An archive.
pub trait Archive: Send + Sync + 'static {
    /// Archives all records of `batch`. `Ok` means that all of them are durable. On an error, the sweeper deletes
    /// none of them and tries again later.
    fn keep<'a>(&'a self, batch: &'a [Archived<'a>]) -> ArchiveFuture<'a>;
}

/// Why records could not be archived. None of them may be deleted.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: io::Error,
}

impl Error {
    /// An error during the operation that `what` describes.
    pub fn new(what: impl Into<String>, source: io::Error) -> Self {
        Self { what: what.into(), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; no record is deleted until the archive works again", self.what, self.source)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
