//! Local commands on PostgreSQL. Needs a server: `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets.

mod confirmed;
mod conflict;
mod crash;
mod doubt;
mod duplicates;
mod hand;
mod keeping;
mod once;
mod paid;
mod secret;
mod undone;
mod world;
