//! Semel on Redis and Valkey.
//!
//! **What lives here**: the store that nodes share on one server or a cluster, and [`MessageDedup`], a
//! short-window deduplication of messages. **What must never**: a rule about what a record means, a second
//! send of a command that may have changed something, or a script that changes something before it has
//! checked everything.
//!
//! Redis answers quickly and loses data more easily than a database:
//! [`hazards`](semel_core::store::Store::hazards) names the settings that lose acknowledged writes. A
//! failover can lose them with any settings.
//!
//! ```no_run
//! use semel_core::id::CommandId;
//! use semel_core::store::Store as _;
//!
//! # async fn example() -> Result<(), semel_core::store::Error> {
//! let store = semel_redis::Store::open("rediss://semel@cache.example?password=env:SEMEL_REDIS_PASSWORD").await?;
//! let reading = store.get(CommandId::from_bytes([7; 32])).await?;
//! assert_eq!(reading.entry, None);
//! store.close().await;
//! # Ok(())
//! # }
//! ```

mod acceptance;
mod address;
mod backend;
mod connection;
mod dedup;
mod expiry;
mod fault;
mod fence;
mod hazards;
mod identity;
mod inspection;
mod layout;
mod link;
mod masters;
mod random;
mod resp;
mod rights;
mod scan;
mod scripts;
mod server_info;
mod servers;
mod shared;
mod slot;
mod store;
mod tls;
mod topology;
mod url_error;
mod waiters;
mod write;

pub use backend::{Backend, TlsBackend};
pub use dedup::{MessageClaim, MessageDedup, MessageId};
pub use store::Store;
pub use url_error::{FilesError, PrefixError, UrlError};
