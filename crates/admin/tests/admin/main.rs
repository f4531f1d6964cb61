//! The admin address over real TCP, on the embedded store.

mod attempts;
mod claim_owner;
mod claims;
mod client;
mod described;
mod erase;
mod gate;
mod health;
mod inboxes;
mod records;
mod settle;
mod trail;
mod worker;
mod world;
