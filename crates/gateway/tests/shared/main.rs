//! The tests of the program `semel` about its guarantees to clients, on PostgreSQL instead of a file. Needs a server:
//! `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets.

#[path = "../gateway/erase.rs"]
mod erase;
#[path = "../gateway/kills.rs"]
mod kills;
#[path = "../gateway/once.rs"]
mod once;
mod starting;
#[path = "../gateway/states.rs"]
mod states;
#[path = "../gateway/status.rs"]
mod status;
mod store;
mod two_gateways;
#[path = "../gateway/world.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod world;
