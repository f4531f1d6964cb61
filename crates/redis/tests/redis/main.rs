//! Tests of the Redis store beyond the contract of all stores. They need servers: `SEMEL_TEST_REDIS_URL`,
//! `SEMEL_TEST_REDIS_CLUSTER_URL` and `SEMEL_TEST_VALKEY_URL`, which `cargo xtask test` sets.

mod acceptance;
mod cluster;
mod contract;
mod damage;
mod dedup;
mod erase;
mod expiry;
mod faults;
mod hazards;
mod loss;
mod masters;
mod opening;
mod promotion;
mod rights;
mod sizes;
mod storm;
mod tls;
mod verification;
mod waiters;
mod world;
