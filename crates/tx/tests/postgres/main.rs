//! Local commands on PostgreSQL. They need a server: `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test`
//! sets.

mod closed;
mod confirmed;
mod conflict;
mod crash;
mod doubt;
mod duplicates;
mod frozen;
mod hand;
mod keeping;
mod late;
mod layer;
mod once;
mod paid;
mod secret;
mod undone;
mod world;

#[path = "../shared/events.rs"]
mod events;
#[path = "../shared/process.rs"]
mod process;
#[path = "../shared/layer.rs"]
mod routes;
