//! Model checking of Semel's state machine.
//!
//! What lives here: a small world of workers, a store, a provider, a sweeper, a reconciler and operators, in
//! which everything that can go wrong does, in every order; and an exhaustive search through all of it that
//! drives the real [`semel_core::machine`] and checks its promises in every state.
//! What must never: a second copy of the machine's rules. The model decides *when* something happens; what it
//! means is asked of the code that runs in production. Each seeded bug is that same code with one answer
//! falsified.
//!
//! Where to begin: `world` is one state, `step` everything that can happen in it, [`invariant`] what must
//! hold, [`explore`](mod@explore) the search, [`catalogue`] what is searched, [`showcase`] what must be found.

pub mod bug;
pub mod catalogue;
pub mod config;
pub mod explore;
pub mod history;
mod ink;
pub mod invariant;
mod protocol;
pub mod showcase;
mod step;
pub mod stopwatch;
mod tamper;
pub mod tell;
mod world;
