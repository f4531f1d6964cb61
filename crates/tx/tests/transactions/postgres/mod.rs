//! Local commands on PostgreSQL.

mod caller_tx;
mod closed;
mod confirmed;
mod conflict;
mod crash;
mod doubt;
mod duplicates;
mod frozen;
mod keeping;
mod late;
mod layer;
mod once;
mod paid;
mod secret;
mod undone;
mod world;
