//! What the engine and its parts promise, on the memory store and a clock controlled by the tests.

mod blocking;
mod caller_operations;
mod calls;
mod clock;
mod copy;
mod doubt;
mod ending;
mod erase;
mod faults;
mod fence;
mod hidden;
mod local;
mod memory_contract;
mod once;
mod outage;
mod promised;
mod races;
mod sealing;
mod secrets;
mod storage;
mod two_clocks;
mod waiting;
mod world;
mod writable;
