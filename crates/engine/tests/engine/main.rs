//! What the engine promises, on the memory store and a clock that tests turn.

mod doubt;
mod ending;
mod faults;
mod keeping;
mod once;
mod waiting;
mod world;
