//! Semel in the application's own database.
//!
//! **What lives here**: the embedded store on [SQLite](sqlite). **What must never**: a rule about what a record means; a
//! store compares and swaps.

mod clock;
pub mod sqlite;

pub use clock::SystemClock;
