//! Commands by hand, in a transaction that the application has opened: what is the same on every database.
//!
//! What lives here: how such a transaction is joined, ended and committed, and what becomes of its connection. What must never: SQL.
//! That is in the [`Dialect`] of each database.

mod commit;
mod dialect;
mod finish;
mod join;
mod open;

#[cfg(feature = "postgres")]
pub(crate) use commit::{Committed, commit};
pub(crate) use dialect::{Dialect, Ids, Known, Unwritten, poll_once};
pub(crate) use finish::Finish;
pub(crate) use finish::finish;
pub(crate) use join::join;
#[cfg(feature = "sqlite")]
pub(crate) use join::look_and_join;
pub(crate) use join::{Joined, Mine, Recorded};
pub(crate) use open::Open;
