//! Tests of the PostgreSQL store beyond the contract of all stores. They need a server:
//! `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets.

mod batches;
mod confirmed;
mod contract;
mod erase;
mod faults;
mod hung;
mod locks;
mod loss;
mod promotion;
mod roles;
mod schema;
mod sizes;
mod storm;
mod tls;
mod waiters;

use semel_test_support::schema as server;
