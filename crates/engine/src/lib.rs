//! Semel makes side effects happen once.
//!
//! **What lives here**: the engine that runs commands over a store: claim, lease, work, finish, replay, wait, sweep,
//! reconcile. **What must never**: a rule about what a state means (that is [`semel_core::machine`]), or a protocol.

mod answer;
pub mod archive;
mod attempt;
pub mod backoff;
mod builder;
mod cache;
mod claim;
mod clock;
pub mod clockwatch;
mod conduct;
mod engine;
mod intent;
mod lease;
pub mod memory;
mod node;
mod observe;
mod operator;
mod ownership;
pub mod payload;
pub mod quota;
mod random;
mod recognise;
mod reconcile;
mod running;
pub mod sealing;
pub mod secrets;
mod settings;
mod spawn;
mod sweep;
mod tasks;
mod telling;
mod timeline;
mod value;
mod wait;

pub use answer::{Answer, Error, GivenUp, Ran, Replayed, Stored, Told};
pub use attempt::{Attempt, NotYours};
pub use builder::{BuildError, Builder};
pub use clock::{Clock, Sleep, SystemClock};
pub use conduct::Ended;
pub use engine::{Engine, Farewell};
pub use intent::Intent;
pub use lease::{Claimed, Lease};
pub use observe::{Call, Event, Observer, Refused, Unobserved};
pub use operator::{Looked, NotDone};
pub use random::{Random, SystemRandom};
pub use reconcile::{Case, Finding, Reconcile};
pub use semel_core as core;
pub use settings::{Probe, Settings, Sweep};
pub use spawn::{Spawn, Task};
pub use sweep::Swept;
pub use value::{Done, Failed, RunError};
