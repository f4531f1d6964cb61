//! The program `semel` itself on its own file, between real sockets: its input, its output, and what it keeps when it
//! is killed.

mod admin;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod allocator;
mod authorize;
mod bodies;
mod callers;
mod certificates;
mod clock;
mod config;
mod crowds;
mod drain;
mod erase;
mod failing;
mod full_disk;
mod kills;
mod leaving;
mod lost;
mod malformed;
mod once;
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
#[path = "../clients/tools.rs"]
#[expect(dead_code, reason = "shared with the tests of clients, which use other tools")]
mod tools;
mod unrouted;
mod world;
