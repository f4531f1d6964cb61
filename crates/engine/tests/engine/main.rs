//! What the engine promises, on the memory store.

mod fence;
mod once;
mod world;
