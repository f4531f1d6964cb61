//! The options of an embedded store.

use crate::SystemClock;
use semel_core::store::Clock;
use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

/// The options of a store. The defaults are right for a service.
///
/// ```
/// use semel_sql::sqlite::Options;
///
/// let options = Options::default().readers(8).wal_bytes_max(16 << 20);
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct Options {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) readers: usize,
    pub(super) wal_bytes_max: u64,
}

impl Options {
    /// The clock that decides about leases; SQLite has none of its own. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// How many reads can run at once, each on its own thread and connection; at least one. Default: as many
    /// as the machine has cores, two to four.
    #[must_use]
    pub fn readers(mut self, readers: usize) -> Self {
        self.readers = readers.max(1);
        self
    }

    /// How large the write-ahead log may grow before writing pauses until its beginning can be used again; at
    /// least 1 MiB. A long-running reader (a backup, a forgotten transaction in another process) can make it
    /// grow further. Default: 64 MiB.
    #[must_use]
    pub fn wal_bytes_max(mut self, bytes: u64) -> Self {
        self.wal_bytes_max = bytes.max(1 << 20);
        self
    }
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        Self { clock: Arc::new(SystemClock), readers: cores.clamp(2, 4), wal_bytes_max: 64 << 20 }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clock: _, readers, wal_bytes_max } = self;
        f.debug_struct("Options")
            .field("readers", readers)
            .field("wal_bytes_max", wal_bytes_max)
            .finish_non_exhaustive()
    }
}
