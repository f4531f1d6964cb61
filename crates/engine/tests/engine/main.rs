//! What the engine promises, on the memory store and a clock controlled by the tests.

mod blocking;
mod caller_operations;
mod calls;
mod clock;
mod doubt;
mod ending;
mod erase;
mod faults;
mod fence;
mod local;
mod once;
mod outage;
mod promised;
mod races;
mod storage;
mod two_clocks;
mod waiting;
mod world;
mod writable;
