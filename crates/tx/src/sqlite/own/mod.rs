//! Local commands on a connection of the application's own to the store's file.
//!
//! The connection is `sqlx`'s. [`begin`] opens a transaction on it with `BEGIN IMMEDIATE`: that takes the file's only write lock, and what is
//! looked up then stays as it is until the commit. [`join`] does the same in a transaction that is open already, and [`finish_in`] stores
//! there how an attempt ended that had its effect elsewhere.
//!
//! **What it costs.** From `BEGIN IMMEDIATE` to the commit nobody else writes to the file: neither the store's own thread (whose callers
//! wait, and are told after 0.7 s that the store is unavailable) nor another connection (`SQLITE_BUSY` after its `busy_timeout`). Every commit
//! waits for the disk by itself, where [`transact`](super::transact) shares that wait among all who write. Use it for work that cannot
//! be a synchronous closure, and keep it short.
//!
//! Unlike the store, it does not check at each commit that the file is still the one that others find under its name.

mod check;
mod dialect;
mod finish;
mod join;
mod rows;

pub use crate::ending::Pending;
pub use finish::{Finish, finish_in};
pub use join::{Begun, Joined, Mine, Recorded, begin, join};
