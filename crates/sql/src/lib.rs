//! Semel in a SQL database.
//!
//! The embedded store on [SQLite](sqlite) (feature `sqlite`, on by default) and the store on a [PostgreSQL](postgres) server
//! (feature `postgres`). A store compares and swaps; no rule about what a record means belongs here.

#[cfg(feature = "sqlite")]
mod clock;
mod columns;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(feature = "sqlite")]
pub use clock::SystemClock;
