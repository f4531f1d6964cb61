//! Seeded histories of the real engine.
//!
//! Nodes, clients, a store behind a network, a provider with a ledger, operators, and everything that can go wrong with
//! them, in virtual time and on one thread, so that a seed repeats a history. The nodes run the real engine. No real
//! clock, thread or order apart from the seed is involved.
//!
//! Start with `run` (the three phases of a history), `world` (its parts) and `audit` (the checks).

mod audit;
pub mod batch;
mod chance;
mod client;
mod erasing;
mod executor;
mod exercised;
mod host;
mod network;
mod node_faults;
mod plan;
mod promise;
mod provider;
mod response;
mod ring;
mod run;
mod sabotage;
mod trace;
mod transaction;
mod two_clocks;
mod work;
mod world;

pub use audit::Violation;
pub use exercised::{Exercised, Tally};
pub use promise::Promise;
pub use run::{Report, play};
pub use sabotage::Sabotage;
pub use trace::Trace;
