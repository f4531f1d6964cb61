//! Manual commands, in a transaction that the application has opened: the parts that do not depend on the
//! database.
//!
//! How such a transaction is joined, ended and committed, and what happens to its connection. SQL is in the
//! [`Dialect`] of each database.

mod commit;
mod dialect;
mod finish;
mod join;
mod open;

#[cfg(feature = "postgres")]
pub(crate) use commit::{Committed, commit};
pub(crate) use dialect::{CommitStatus, Dialect, Ids, WriteFailure, poll_once};
pub(crate) use finish::Finish;
pub(crate) use finish::finish;
pub(crate) use join::join;
#[cfg(feature = "sqlite")]
pub(crate) use join::look_and_join;
pub(crate) use join::{Joined, OwnedTransaction, Recorded};
pub(crate) use open::Open;
