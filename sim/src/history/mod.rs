//! Seeded histories of the real engine.
//!
//! What lives here: a world of nodes, clients, a store behind a network, a provider with a ledger, operators, and
//! everything that can go wrong with any of them, in virtual time and on one thread, so that a seed is a history and a
//! history can be repeated. What runs on the nodes is the engine itself. What must never: a real clock, a thread, or an
//! order that the seed does not decide.
//!
//! Where to begin: `run` has the three acts of a history, `world` what it takes place in, `audit` what it is held to.

mod audit;
pub mod batch;
mod chance;
mod client;
mod erasing;
mod executor;
mod exercised;
mod heard;
mod host;
mod misfortune;
mod network;
mod plan;
mod promise;
mod provider;
mod ring;
mod run;
mod sabotage;
mod trace;
mod transaction;
mod work;
mod world;

pub use audit::Violation;
pub use exercised::{Exercised, Tally};
pub use promise::Promise;
pub use run::{Report, play};
pub use sabotage::Sabotage;
pub use trace::Trace;
