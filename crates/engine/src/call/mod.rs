//! From an intent to its answer.
//!
//! Recognise the command, find its duplicate, claim it, run the work, store how it ended, and answer everybody who asked:
//! in a task of the engine, by a worker elsewhere ([`lease`]), or in the transaction of the effect ([`local`]).

pub(crate) mod admission;
pub(crate) mod answer;
pub(crate) mod attempt;
pub(crate) mod claim;
pub(crate) mod conduct;
pub(crate) mod engine;
pub(crate) mod finishing;
pub(crate) mod found_record;
pub(crate) mod intent;
pub(crate) mod lease;
pub mod local;
pub mod payload;
pub(crate) mod recognise;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod value;
pub(crate) mod wait;
