//! Local commands on the application's own connection to the store's file.
//!
//! It is a `sqlx` connection. [`begin`] opens a transaction on it with `BEGIN IMMEDIATE`: that takes the
//! file's only write lock, so the record cannot change between the lookup and the commit. [`join`] does the
//! same in a transaction that is already open, and [`finish_in`] stores the ending of an attempt with an
//! external effect there.
//!
//! **What it costs.** From `BEGIN IMMEDIATE` to the commit no other connection can write to the file: neither
//! the store's own thread (whose callers wait, and get "unavailable" after 0.7 s) nor another connection
//! (`SQLITE_BUSY` after its `busy_timeout`). Every commit waits for the disk separately, while
//! [`transact`](super::transact) shares that wait among all writers. Use it for work that cannot be a
//! synchronous closure, and keep it short.
//!
//! Unlike the store, it does not check at each commit that the file's name still leads to it.

mod check;
mod dialect;
mod finish;
mod join;
mod rows;

pub use crate::ending::Pending;
pub use finish::{Finish, finish_in};
pub use join::{Begun, Joined, OwnedTransaction, Recorded, begin, join};
