//! What is kept of records before they are deleted.
//!
//! **Contents**: the [`Archive`] that a sweeper hands records to before it deletes them or drops their outcome, and
//! [`FileArchive`], which appends them to a file as JSON lines. **Never here**: a record that is deleted before its
//! line is durable, or a way to read records back into a store: an archive is for people and their tools.
//!
//! A sweeper keeps a record *twice* in its life where tombstones are on: with its outcome before that is dropped, and
//! as a tombstone before that is removed. It also keeps it again whenever it cannot tell whether it did, or was too
//! late to delete it. So a record can have several lines: `operation_id` and `version` tell which say the same.

pub mod base64;
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
    /// The id that it is under; what its body was sealed to.
    pub id: CommandId,
    /// The record. An outcome that is sealed is archived as it is.
    pub record: &'a Record,
}

/// An answer on its way.
pub type Keeping<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Keeps records before they are deleted.
pub trait Archive: Send + Sync + 'static {
    /// Keeps every record of `batch`. `Ok` means that all of them are durable; on an error some may be, and the sweeper
    /// deletes none of them and tries again later.
    fn keep<'a>(&'a self, batch: &'a [Archived<'a>]) -> Keeping<'a>;
}

/// Why records could not be archived. None of them may be deleted.
#[derive(Debug)]
pub struct Error {
    what: String,
    source: io::Error,
}

impl Error {
    /// An error that came up while doing what `what` says.
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
