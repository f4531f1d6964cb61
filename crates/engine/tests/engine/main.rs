//! What the engine promises, on the memory store and a clock that tests turn.

mod blocking;
mod calls;
mod clock;
mod doubt;
mod ending;
mod erase;
mod faults;
mod fence;
mod keeping;
mod local;
mod once;
mod outage;
mod own;
mod races;
mod waiting;
mod world;
