//! What people do to records: look up, resolve, release, erase, copy.
//!
//! For operators, and for callers who look at their own operations. Nothing here begins an attempt.

pub(crate) mod actions;
pub(crate) mod caller_operation;
pub mod copy;
