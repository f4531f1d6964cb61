//! Semel makes side effects happen once.
//!
//! **What lives here**: the engine that runs commands over a store: claim, lease, work, finish, replay, wait, sweep,
//! reconcile. **What must never**: a rule about what a state means (that is [`semel_core::machine`]), or a protocol.

mod clock;
mod random;
pub mod sealing;
pub mod secrets;
mod spawn;

pub use clock::{Clock, Sleep, SystemClock};
pub use random::{Random, SystemRandom};
pub use semel_core as core;
pub use spawn::{Spawn, Task};
