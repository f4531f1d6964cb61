//! What the engine promises, on the memory store.

mod once;
mod world;
