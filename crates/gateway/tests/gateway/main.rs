//! The program `semel` itself, between real sockets: its input, its output, and what it keeps when it is killed.
//! Clients, proxies and the programs that people run it with are real, too.
//!
//! Tests on PostgreSQL need a server: `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets. Each one on Redis starts
//! its own server, which `cargo xtask test` installs.

mod admin;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator;
mod authorize;
mod bodies;
mod callers;
mod certificates;
mod clients;
mod clock;
mod config;
mod crowds;
mod deadlines;
mod drain;
mod erase;
mod failing;
mod full_disk;
mod kills;
mod leaving;
mod lost;
mod malformed;
mod on_postgres;
#[cfg(feature = "redis")]
mod on_redis;
mod once;
mod operating;
mod operations;
mod operators;
mod passing;
mod rebuild;
mod reconcile;
mod reload;
mod renewed;
mod responses;
mod sealed;
mod secret;
mod secure;
mod settings;
mod spelling;
mod states;
mod status;
mod storage;
mod store;
mod suspended;
mod telemetry;
mod tokens;
mod tools;
mod two_gateways;
mod unrouted;
mod world;
