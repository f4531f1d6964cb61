//! Local commands in the file of an SQLite store.

mod crash;
mod neighbours;
mod once;
mod own;
mod secret;
mod world;
