//! Local commands: their effect is in the same transaction as their record, on PostgreSQL and in the file of an
//! SQLite store. They need a server: `SEMEL_TEST_POSTGRES_URL`, which `cargo xtask test` sets.

mod events;
mod postgres;
mod process;
mod routes;
mod sqlite;
