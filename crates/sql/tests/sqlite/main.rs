//! Tests of the embedded store beyond the contract of all stores.

mod basics;
mod child;
mod closing;
mod columns;
mod contract;
mod crash;
mod damage;
mod erase;
mod file;
mod listing;
mod log;
mod lost;
mod processes;
mod read_only;
mod room;
mod scratch;
