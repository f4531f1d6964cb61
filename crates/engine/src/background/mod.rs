//! Work that no request asked for.
//!
//! Sweeping records whose time is over, probing unknown outcomes, and probing whether the store accepts records. Each
//! runs until the last handle of its engine is dropped, and none of them knows a call.

pub(crate) mod heartbeat;
pub(crate) mod reconcile;
pub(crate) mod sweep;
mod sweep_pace;
pub(crate) mod write_probe;
