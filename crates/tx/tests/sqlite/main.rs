//! Local commands in the file of an SQLite store.

mod crash;
mod hand;
mod layer;
mod neighbours;
mod once;
mod order;
mod own;
mod paid;
mod secret;
mod world;
