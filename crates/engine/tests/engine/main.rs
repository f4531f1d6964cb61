//! What the engine promises, on the memory store and a clock that tests turn.

mod blocking;
mod calls;
mod clock;
mod doubt;
mod ending;
mod faults;
mod fence;
mod keeping;
mod local;
mod once;
mod outage;
mod own;
mod races;
mod sweeping;
mod waiting;
mod world;
