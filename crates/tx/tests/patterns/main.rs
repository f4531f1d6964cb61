//! The patterns in the caller's own transaction, on PostgreSQL and SQLite. They need a server:
//! `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets.

#[macro_use]
mod world;

mod batch;
mod composed;
mod counter;
mod crash;
mod faults;
mod fence;
mod inbox;
mod languages;
mod natural;
mod reference;
mod schema;
mod vectors;
mod wrong;
