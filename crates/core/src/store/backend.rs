//! One kind of store: which URLs are its own, and what can be done with what they name.
//!
//! A program that opens stores by URL holds a list of backends and asks the one whose scheme the URL has. Nothing
//! else in it needs to know which stores there are.

use super::{Clock, Pending, Store};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// How a store is opened, where its defaults do not do. A store ignores what means nothing to it.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// How many connections answer questions at the same time.
    pub connections: Option<usize>,
    /// How large a log on disk may grow before it is started anew.
    pub log_bytes_max: Option<u64>,
    /// Records are archived before they are removed: a server's own time to live has to stay off.
    pub is_archived: bool,
    /// What a store without a clock of its own goes by instead of the machine's clock. For tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("connections", &self.connections)
            .field("log_bytes_max", &self.log_bytes_max)
            .field("is_archived", &self.is_archived)
            .finish_non_exhaustive()
    }
}

/// The version of a store's tables. A version is the number of steps that were taken to it; 0 means that there are
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// What the store has.
    pub have: usize,
    /// What this build needs, and brings a store to that it opens for writing.
    pub wanted: usize,
}

/// How much room a store takes, where that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// The records, with whatever the store keeps beside them.
    pub data_bytes: Option<u64>,
    /// A log that is not part of them yet.
    pub log_bytes: Option<u64>,
}

/// One kind of store. `address` is what follows the scheme and its colon in a URL; one that is handed to
/// [`open`](Self::open) or [`inspect`](Self::inspect) has passed [`check`](Self::check).
pub trait Backend: Send + Sync + 'static {
    /// The scheme of its URLs, without the colon: `sqlite`.
    fn scheme(&self) -> &'static str;

    /// Other spellings of the scheme that people use.
    fn scheme_aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// How its URLs are written, for help and errors: `sqlite:PATH`.
    fn url_form(&self) -> &'static str;

    /// Refuses an address that can never name a store of this kind. The error says what is wrong and does not repeat a
    /// password.
    fn check(&self, address: &str) -> Result<(), String>;

    /// The library that does the work, with its version: `SQLite 3.51.3`. `None` if there is none.
    fn library(&self) -> Option<String> {
        None
    }

    /// Whether the store ends with the process that opened it, so that no other process can look at it.
    fn is_in_process(&self) -> bool {
        false
    }

    /// The steps to this build's tables, from an empty store on. Empty where the store has no tables.
    fn schema_steps(&self) -> &'static [&'static str] {
        &[]
    }

    /// What makes an empty database into this build's store, for anyone who runs statements by other means. `address`
    /// may name where in the database that is. Empty where the store has no tables.
    fn schema_script(&self, address: &str) -> String {
        let _ = address;
        self.schema_steps().join("\n")
    }

    /// The address of another store on the same server, of its own under `name` (lower-case letters, digits and `_`);
    /// `None` where the address says by itself which store it is. For tools that make stores of their own.
    fn address_apart(&self, address: &str, name: &str) -> Option<String> {
        let _ = (address, name);
        None
    }

    /// The files on this machine that the store consists of, where it is made of such, the one with the records
    /// first. Some of them are there only while it is open.
    fn files(&self, address: &str) -> Vec<PathBuf> {
        let _ = address;
        Vec::new()
    }

    /// Whether the store is there. Opening one that is not creates it.
    fn exists<'a>(&'a self, address: &'a str) -> Pending<'a, bool>;

    /// Opens the store for reading and writing, and brings it to this build's tables.
    fn open<'a>(&'a self, address: &'a str, options: &'a OpenOptions) -> Pending<'a, Arc<dyn Store>>;

    /// Opens a store that is there for reading only, while others may write to it. Changes nothing in it, and answers
    /// every write and setting with [`Kind::ReadOnly`](super::Kind::ReadOnly), whatever its condition.
    fn inspect<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Inspection>>;
}

/// A store that was opened for reading only.
pub trait Inspection: Store {
    /// Which version its tables have. An error where they are not Semel's, or a newer build's.
    fn schema(&self) -> Pending<'_, SchemaVersion>;

    /// What is damaged, a line each; empty where nothing is. Reads everything: minutes where the store is large.
    fn verify(&self) -> Pending<'_, Vec<String>>;

    /// Whether what is read here may lag behind what was acknowledged: the server is a standby of the one that takes
    /// writes.
    fn is_replica(&self) -> Pending<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// How much room the store takes.
    fn size(&self) -> StoreSize;
}
