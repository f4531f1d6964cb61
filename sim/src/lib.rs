//! Model checking of Semel's state machine.
//!
//! What lives here: a small world of workers, a store, a provider, a sweeper, a reconciler and operators, in which
//! everything that can fail does, in every order; and an exhaustive search that runs the real [`semel_core::machine`]
//! and checks its promises in every state. What must never: a second copy of the machine's rules. The model decides
//! *when* something happens, and the production code decides what it means. Each seeded bug is that code with one
//! answer falsified.
//!
//! Start with `world` (one state), `model` (what it is judged by), `step` (everything that can happen in it), [`invariant`] (what must hold),
//! [`explore`](mod@explore) (the search), [`catalogue`] (the configurations) and [`showcase`] (what must be found).

pub mod bug;
pub mod catalogue;
pub mod config;
pub mod describe;
pub mod explore;
pub mod history;
pub mod invariant;
mod model;
mod protocol;
pub mod showcase;
mod state_bytes;
mod step;
pub mod stopwatch;
mod tamper;
mod world;
