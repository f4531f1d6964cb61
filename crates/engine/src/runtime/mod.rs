//! What an engine gets from the machine and the runtime that it runs on.
//!
//! Clock, timers, randomness, tasks, spans. A simulation replaces them. Nothing here knows a store or a command.

mod alarm;
pub mod backoff;
pub(crate) mod clock;
pub(crate) mod random;
pub(crate) mod spans;
pub(crate) mod spawn;
pub(crate) mod tasks;
