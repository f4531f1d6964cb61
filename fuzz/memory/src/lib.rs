//! Nothing here: see `tests/memory.rs`.
