//! The tests of the program `semel` about its guarantees to clients, on Redis instead of a file. Each starts its own
//! server, which `cargo xtask test` installs.

mod emptied;
#[path = "../gateway/erase.rs"]
mod erase;
#[path = "../gateway/kills.rs"]
mod kills;
#[path = "../gateway/once.rs"]
mod once;
mod servers;
mod settings;
mod starting;
#[path = "../gateway/states.rs"]
mod states;
#[path = "../gateway/status.rs"]
mod status;
mod store;
#[path = "../shared/two_gateways.rs"]
mod two_gateways;
#[path = "../gateway/world.rs"]
#[expect(dead_code, reason = "shared with tests that need more of it")]
mod world;
