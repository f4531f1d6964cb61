//! The store on a PostgreSQL server, shared by any number of nodes.
//!
//! Queued writes are sent together: one statement, one commit. A claim costs one round trip when idle, even
//! if it is refused. No statement leaves state in its session, so a pooler may be in between (`PgBouncer` in
//! transaction mode).
//!
//! ```no_run
//! use semel_core::id::CommandId;
//! use semel_core::store::Store as _;
//! use semel_sql::postgres;
//!
//! # async fn example() -> Result<(), semel_core::store::Error> {
//! let url = "postgres://semel@db.example/payments?password=env:SEMEL_DB_PASSWORD&sslmode=verify-full";
//! let store = postgres::Store::open(url, postgres::Options::default()).await?;
//! let reading = store.get(CommandId::from_bytes([7; 32])).await?;
//! assert_eq!(reading.entry, None);
//! store.close().await;
//! # Ok(())
//! # }
//! ```

mod address;
mod backend;
mod changes;
mod confirming;
mod connecting;
mod doubts;
mod fault;
mod hazards;
mod inboxes;
mod inspection;
mod job;
mod own_row;
mod pulse;
mod queue;
mod reader;
mod scan;
mod schema;
mod session;
mod side;
mod slot;
mod socket;
mod store;
mod time;
mod timeline;
mod tls;
pub mod transaction;
mod url_error;
mod waiters;
mod writer;

pub use address::SchemaNameError;
pub use backend::Backend;
pub use tls::TlsError;
pub use url_error::{FilesError, UrlError};

use address::Address;
use changes::Changes;
use confirming::Confirming;
use doubts::Doubts;
use queue::{Ids, Queue};
use reader::Reader;
use scan::Scanner;
use semel_core::store::{Clock, Error, Kind};
use slot::Slot;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use time::ServerTime;
use tokio::task::{AbortHandle, JoinHandle};
use waiters::Waiters;
use writer::{PATIENCE_WHEN_LOCKED, Writer, Writing};

/// The most bytes of one entry.
const ENTRY_BYTES_MAX: u64 = 128 << 20;
/// Connections that write as soon as anything waits. The others wait until there is much.
const CONNECTIONS_FOR_ANY: usize = 2;
/// Connections for writes to rows that other sessions have locked.
const CONNECTIONS_FOR_LOCKED: usize = 2;

/// The options of a store.
#[derive(Clone, Default)]
pub struct Options {
    connections: Option<usize>,
    request_timeout: Option<Duration>,
    clock: Option<Arc<dyn Clock>>,
}

impl Options {
    /// How many connections read and write, if the URL does not say (`connections=8`); 2 to 64. Up to five
    /// more are for listings, settings, notifications and rows that others have locked. While connections do not
    /// answer, for example because commits wait for a standby that is missing, there are up to three times as many.
    /// Default: 4.
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = Some(connections);
        self
    }

    /// How long callers wait for an answer. A connection on which nothing comes for that long, while a call
    /// waits, gets no new calls and is replaced. Default: 1 s.
    #[must_use]
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = Some(request_timeout);
        self
    }

    /// A clock to use instead of the server's. For tests.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// A store on a server. See the [module](self), and [`Store`](semel_core::store::Store) for what it does.
///
/// Its tasks run on the runtime that it was opened on. Dropping it ends them as soon as what was sent is
/// answered.
pub struct Store {
    name: String,
    address: Arc<Address>,
    shared: Arc<Writing>,
    reader: Reader,
    scanner: Scanner,
    /// For what commits besides records, and may wait for a standby: settings, notifications, confirmations.
    committing: Arc<Slot>,
    confirming: Arc<Confirming>,
    is_closed: AtomicBool,
    writers: Mutex<Vec<JoinHandle<()>>>,
    /// The tasks that receive and send notifications.
    notifiers: Vec<AbortHandle>,
}

impl Store {
    /// Opens the store that a URL names, and creates its tables if they do not exist.
    ///
    /// Refuses foreign tables and those of a newer build, and a server that takes no writes or is too old.
    pub async fn open(url: &str, options: Options) -> Result<Self, Error> {
        let unfit = |cause: String| Error::new(Kind::Unfit, "opening the PostgreSQL store").because(cause);
        let address = url.strip_prefix("postgres:").or_else(|| url.strip_prefix("postgresql:"));
        let address = address.ok_or_else(|| unfit("its URL begins with postgres://".to_owned()))?;
        Self::at(address, options).await
    }

    /// `address` is what follows the scheme.
    async fn at(text: &str, options: Options) -> Result<Self, Error> {
        let unfit = |cause: UrlError| Error::new(Kind::Unfit, "opening the PostgreSQL store").because(cause);
        let mut address: Address = text.parse().map_err(unfit)?;
        if let Some(silent_after) = options.request_timeout {
            address.silent_after = silent_after;
        }
        let address = Arc::new(address);
        let schema = address.schema.clone();
        let slot = Arc::new(Slot::new(&address));
        schema::migrate(&slot, &schema, address.user()).await?;
        let time = ServerTime::new(options.clock);
        let (waiters, to_send) = Waiters::new();
        let ids: Arc<Ids> = Arc::default();
        let doubts: Arc<Doubts> = Arc::default();
        let shared = Arc::new(Writing {
            queue: Queue::new(Arc::clone(&ids)),
            locked: Queue::new(ids),
            time: time.clone(),
            waiters: Arc::clone(&waiters),
            doubts: Arc::clone(&doubts),
            sql: Changes::sql(&schema),
            locked_logged_at: Mutex::default(),
        });
        let connections = address.connections_or(options.connections);
        let writer_on = |slot| Writer { slot: Arc::new(slot), shared: Arc::clone(&shared) };
        let writer = || writer_on(Slot::new(&address));
        let for_locked = || writer_on(Slot::with_patience(&address, PATIENCE_WHEN_LOCKED));
        let for_any = (connections / 2).min(CONNECTIONS_FOR_ANY);
        let mut writers: Vec<_> = (0..for_any).map(|_| tokio::spawn(writer().run())).collect();
        writers.extend((for_any..connections / 2).map(|_| tokio::spawn(writer().run_for_many())));
        writers.extend((0..CONNECTIONS_FOR_LOCKED).map(|_| tokio::spawn(for_locked().run_for_locked())));
        let readers = (0..connections - connections / 2).map(|_| Slot::new(&address)).collect();
        let committing = Arc::new(Slot::new(&address));
        let mut notifiers = Vec::new();
        if let Some(listening) = address.for_listening() {
            let channel = format!("semel_{schema}");
            let sending = waiters::send_notifications(Arc::clone(&committing), to_send, channel.clone());
            let receiving = waiters::listen(Arc::downgrade(&waiters), listening, channel);
            notifiers.extend([tokio::spawn(sending).abort_handle(), tokio::spawn(receiving).abort_handle()]);
            waiters.listened().await;
        }
        Ok(Self {
            name: format!("postgres:{text}"),
            reader: Reader::new(readers, &schema, time.clone(), false)
                .with_doubts(doubts, Arc::clone(&committing)),
            scanner: Scanner { slot, schema, time, any_server: false },
            confirming: Confirming::new(Arc::clone(&committing)),
            committing,
            address,
            shared,
            is_closed: AtomicBool::new(false),
            writers: Mutex::new(writers),
            notifiers,
        })
    }

    /// Accepts no more calls, and returns when every accepted write is answered.
    pub async fn close(&self) {
        self.stop();
        let writers = std::mem::take(&mut *self.writers.lock().unwrap_or_else(PoisonError::into_inner));
        let (for_locked, writers): (Vec<_>, Vec<_>) = {
            let mut writers = writers;
            let first = writers.len().saturating_sub(CONNECTIONS_FOR_LOCKED);
            (writers.split_off(first), writers)
        };
        for writer in writers {
            drop(writer.await);
        }
        // Only now can no writer use these queues any more.
        self.shared.locked.close();
        for writer in for_locked {
            drop(writer.await);
        }
    }

    fn stop(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.shared.queue.close();
        self.reader.close();
        self.notifiers.iter().for_each(AbortHandle::abort);
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Error::new(Kind::Closed, "asking the PostgreSQL store"));
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
        self.shared.locked.close();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("postgres::Store").field("name", &self.name).finish_non_exhaustive()
    }
}
