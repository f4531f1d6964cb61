//! Local commands in the file of an SQLite store.

mod caller_tx;
mod closed;
mod crash;
mod late;
mod layer;
mod neighbours;
mod once;
mod order;
mod own;
mod paid;
mod respond;
mod secret;
mod world;
