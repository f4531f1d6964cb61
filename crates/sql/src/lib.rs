//! Stores in SQL databases.
//!
//! **What lives here**: the embedded store on [SQLite](sqlite) (feature `sqlite`, on by default) and the
//! store on a [PostgreSQL](postgres) server (feature `postgres`). **What must never**: a rule about what a
//! record means; a store compares and swaps.

#[cfg(feature = "sqlite")]
mod clock;
mod columns;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "sqlite")]
pub use clock::SystemClock;
