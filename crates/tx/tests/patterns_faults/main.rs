//! The patterns under faults: other holders of the same ID, calls that fail or are dropped, deferred
//! constraints; in the work of `sqlite::transact`; and what operators see. They need a server:
//! `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets.

#[macro_use]
#[path = "../patterns/world.rs"]
#[expect(dead_code, reason = "shared with the tests of each pattern, which use more of it")]
mod world;

mod blocking;
mod deferred;
mod ended;
mod observed;
mod server;
mod stats;
mod undone;
mod waiting;
