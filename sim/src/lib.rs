//! Model checking of the state machine.
#![expect(missing_docs, reason = "wip")]

pub mod bug;
pub mod catalogue;
pub mod config;
pub mod explore;
pub mod invariant;
pub mod protocol;
pub mod step;
pub mod world;
