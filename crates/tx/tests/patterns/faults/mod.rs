//! The patterns under faults: other holders of the same ID, calls that fail or are dropped, deferred
//! constraints; in the work of `sqlite::transact`; and what operators see.

mod blocking;
mod deferred;
mod ended;
mod observed;
mod server;
mod stats;
mod undone;
mod waiting;
