//! What the store on PostgreSQL promises beyond what every store does. Needs a server: `SEMEL_TEST_POSTGRES_URL`, which
//! `cargo xtask test` sets.

mod batches;
mod confirmed;
mod contract;
mod faults;
mod locks;
#[path = "../records/mod.rs"]
mod records;
mod roles;
mod schema;
mod storm;
mod waiters;

use semel_test_support::schema as server;
