//! One kind of store: its URLs, and how to open them.
//!
//! A program that opens stores by URL has a list of backends and picks the one with the URL's scheme. The rest of the
//! program does not know which stores exist.

use super::{Clock, Error, Kind, Pending, Store};
use std::error::Error as StdError;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Options for opening a store. A store ignores options that do not apply to it.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// How many connections to use.
    pub connections: Option<usize>,
    /// How long callers wait for an answer: a connection that is silent for longer is not used for further calls.
    pub request_timeout: Option<std::time::Duration>,
    /// How large a log on disk may grow before it is truncated.
    pub log_bytes_max: Option<u64>,
    /// Replaces the machine's clock in a store that has none of its own. For tests.
    pub clock: Option<Arc<dyn Clock>>,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("connections", &self.connections)
            .field("request_timeout", &self.request_timeout)
            .field("log_bytes_max", &self.log_bytes_max)
            .finish_non_exhaustive()
    }
}

/// The version of a store's tables: the number of schema steps applied; 0 if there are no tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaVersion {
    /// The store's version.
    pub have: usize,
    /// The version that this build needs. Opening for writing upgrades to it.
    pub wanted: usize,
}

/// How much space a store uses, on its disk or in its server's memory, if known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// The records and everything stored with them.
    pub data_bytes: Option<u64>,
    /// A log that is not merged into them yet.
    pub log_bytes: Option<u64>,
}

/// The setting that holds the state of the hashing secret.
pub const SECRET_SETTING: &str = "secrets";

/// The setting that says that an operator accepted the loss of the hashing secret: when, in seconds of the store's time,
/// as decimal digits. The first node that starts writes a secret again, and removes it.
pub const SECRET_LOST_SETTING: &str = "secrets.lost";

/// The loss that an operator accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedLoss {
    /// How many parts of the store were lost; 0 if none were, and nothing was changed.
    pub parts: usize,
    /// How many parts there are.
    pub of: usize,
    /// Whether the settings were lost.
    pub settings: bool,
    /// Whether the hashing secret was lost with the settings. The first node that starts writes its configured secret,
    /// or a new one, under which no record that is left is found. Nodes that are running refuse the store.
    pub secret: bool,
}

/// Why an address cannot be used, or what it names on this machine. It contains no password.
///
/// Every kind of store has its own reasons:
///
/// ```
/// use semel_core::store::AddressError;
/// use std::io;
///
/// let refused = AddressError::new(io::Error::new(io::ErrorKind::NotFound, "there is no such file"));
/// let reason = refused.reason().downcast_ref::<io::Error>();
/// assert_eq!(reason.map(io::Error::kind), Some(io::ErrorKind::NotFound));
/// assert_eq!(refused.to_string(), "there is no such file");
/// ```
#[derive(Debug)]
pub struct AddressError(Box<dyn StdError + Send + Sync>);

impl AddressError {
    /// A store's own reason, whose text explains what is wrong and contains no password.
    pub fn new(reason: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self(reason.into())
    }

    /// The store's own reason.
    pub fn reason(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0
    }
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The reason is shown already, so that its own source comes next.
impl StdError for AddressError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

/// One kind of store. `address` is what follows the scheme and its colon in a URL; [`open`](Self::open) and
/// [`inspect`](Self::inspect) get only addresses that passed [`check`](Self::check).
pub trait Backend: Send + Sync + 'static {
    /// The scheme of its URLs, without the colon: `sqlite`.
    fn scheme(&self) -> &'static str;

    /// Aliases of the scheme.
    fn scheme_aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// How its URLs are written, for help and errors: `sqlite:PATH`.
    fn url_form(&self) -> &'static str;

    /// Rejects an invalid address.
    fn check(&self, address: &str) -> Result<(), AddressError>;

    /// Checks what the address names on this machine, such as a file with a password, without connecting, opening or
    /// creating anything. `address` passed [`check`](Self::check). Opening the store may still fail.
    fn check_files(&self, address: &str) -> Result<(), AddressError> {
        let _ = address;
        Ok(())
    }

    /// Parts of a valid address that have no effect, one sentence for each, without a password.
    fn warnings(&self, address: &str) -> Vec<String> {
        let _ = address;
        Vec::new()
    }

    /// Whether its stores keep records [in memory](super::Capabilities::kept_in_memory).
    fn keeps_in_memory(&self) -> bool {
        false
    }

    /// The underlying library with its version: `SQLite 3.51.3`. `None` if there is none.
    fn library(&self) -> Option<String> {
        None
    }

    /// Whether the store exists only inside the process that opened it.
    fn is_in_process(&self) -> bool {
        false
    }

    /// The schema steps from an empty store to this build's tables. Empty if the store has no tables.
    fn schema_steps(&self) -> &'static [&'static str] {
        &[]
    }

    /// A script that turns an empty database into this build's store, to run with another tool. `address` may name a
    /// place inside the database. Empty if the store has no tables.
    fn schema_script(&self, address: &str) -> String {
        let _ = address;
        self.schema_steps().join("\n")
    }

    /// The address of a separate store called `name` (lower-case letters, digits and `_`) on the same server; `None`
    /// if the address alone identifies the store. For tools that create temporary stores.
    fn address_apart(&self, address: &str, name: &str) -> Option<String> {
        let _ = (address, name);
        None
    }

    /// The store's files on this machine, if it has any, the one with the records first. Some exist only while the
    /// store is open.
    fn files(&self, address: &str) -> Vec<PathBuf> {
        let _ = address;
        Vec::new()
    }

    /// Whether the store exists. Opening a missing one creates it.
    fn exists<'a>(&'a self, address: &'a str) -> Pending<'a, bool>;

    /// Opens the store for reading and writing, and upgrades its tables.
    fn open<'a>(&'a self, address: &'a str, options: &'a OpenOptions) -> Pending<'a, Arc<dyn Store>>;

    /// Accepts that the store has lost data, so that nodes use the lost parts again, empty. `why` says who accepts it,
    /// when and why, and is kept in the store. Fails for a kind of store that does not detect the loss of a part.
    fn accept_loss<'a>(&'a self, address: &'a str, why: &'a str) -> Pending<'a, AcceptedLoss> {
        let _ = (address, why);
        let cause = "this kind of store has no parts whose loss could be accepted";
        Box::pin(std::future::ready(Err(Error::new(Kind::Unfit, "accepting a loss").because(cause))))
    }

    /// Opens an existing store for reading only, while others may write to it. Changes nothing, and answers every
    /// write and setting with [`Kind::ReadOnly`](super::Kind::ReadOnly), whatever its condition.
    fn inspect<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Inspection>>;
}

/// A store that was opened for reading only.
pub trait Inspection: Store {
    /// Which version its tables have. Fails if they are not Semel's, or a newer build's.
    fn schema(&self) -> Pending<'_, SchemaVersion>;

    /// One line for each damage found; empty if there is none. Reads everything, which takes minutes for a large
    /// store.
    fn verify(&self) -> Pending<'_, Vec<String>>;

    /// Whether reads may lag behind acknowledged writes: the server is a standby.
    fn is_replica(&self) -> Pending<'_, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }

    /// How much space the store uses.
    fn size(&self) -> StoreSize;
}
