//! Semel makes side effects happen once.
//!
//! A request times out and nobody knows whether the card was charged; the client retries, the queue redelivers, the
//! operator runs the job again. An [`Engine`] recognises that it is the same [`Intent`], runs your work once, stores what came
//! of it and gives that same answer to every retry. Where nobody can prove what happened, it says so.
//!
//! **What lives here**: the engine that runs commands over a store: claim, lease, work, finish, replay, wait, sweep,
//! reconcile. **What must never**: a rule about what a state means (that is [`semel_core::machine`]), or a protocol.
//!
//! # Three ways to use it
//!
//! - [`Engine::run`]: work that returns a value. The same value comes back on every retry, `0`, `""` and `None` too.
//! - [`Engine::execute`]: work that ends with a raw [`Outcome`](core::outcome::Outcome): status, headers, bytes.
//! - [`Engine::claim`]: a [`Lease`] by hand, for a worker that runs elsewhere: renew, finish, give back.
//!
//! # What your work has to say
//!
//! How it failed decides what a retry gets, and only the work knows:
//!
//! | the work ends with | the record | the next call with the key |
//! |---|---|---|
//! | `Ok(value)` | `SUCCEEDED` | gets the value |
//! | [`Failed::Refused`] | `FAILED_REPLAYABLE` | gets the same refusal |
//! | [`Failed::NotApplied`] | `FAILED_NOT_REPLAYABLE` | is the next attempt |
//! | [`Failed::InDoubt`], its deadline | `UNKNOWN` | is told so, until somebody finds out ([`Reconcile`], [`Engine::resolve`]) |
//! | a panic, a crash | stays until its lease dies | is told so; where the provider deduplicates, the next attempt |
//!
//! Say `NotApplied` only of what you know: "the connection was refused" is, a time-out is not.
//!
//! # What it rests on
//!
//! The [class](core::policy::Class) of the policy names the guarantee; the store has to keep what it acknowledged
//! ([`hazards`](core::store::Store::hazards) tells what speaks against that); and the work has to ask
//! [`Attempt::check`] right before its effect's first byte, if it does anything slow before. What remains, a process that is
//! frozen between that check and the byte, is refused only by a system that compares [`Attempt::fence`].

mod alarm;
mod answer;
pub mod archive;
mod attempt;
pub mod backoff;
mod builder;
mod cache;
mod claim;
mod clock;
mod conduct;
pub mod copy;
mod engine;
mod finishing;
mod intent;
mod lease;
pub mod local;
pub mod memory;
mod node;
mod observe;
mod operator;
mod own;
mod ownership;
pub mod payload;
mod questions;
pub mod quota;
mod random;
mod recognise;
mod reconcile;
mod renewer;
mod running;
pub mod sealing;
pub mod secrets;
mod settings;
mod spans;
mod spawn;
mod store_id;
mod sweep;
mod tasks;
mod telling;
pub mod time;
mod value;
mod wait;
mod writable;

pub use answer::{Answer, Error, GivenUp, Ran, Replayed, Stored, Told};
pub use attempt::{Attempt, NotYours};
pub use builder::{BuildError, Builder};
pub use clock::{Clock, Sleep, SystemClock};
pub use conduct::Ended;
pub use engine::{Engine, Farewell};
pub use finishing::{Finishing, NotFinished};
pub use intent::Intent;
pub use lease::{Claimed, Lease};
pub use observe::{Call, Event, Observer, Refused, Unobserved};
pub use operator::{Erased, Looked, NotDone};
pub use own::Own;
pub use random::{Random, SystemRandom};
pub use reconcile::{Case, Finding, Reconcile};
pub use semel_core as core;
pub use semel_core::id::OperationId;
pub use semel_core::key::Key;
pub use semel_core::policy::{Class, Policy};
pub use semel_core::scope::{Identity, Operation, Scope};
pub use settings::{ClockSettings, Probe, Settings, Sweep};
pub use spans::SPANS;
pub use spawn::{Spawn, Task};
pub use store_id::StoreId;
pub use sweep::Swept;
pub use value::{Done, Failed, NoValue, RunError};
pub use writable::Refusing;
