//! `semel serve --demo`: a payment service with a ledger ([`payments`]), and clients that lose responses, click twice,
//! crash and retry ([`story`]).
//!
//! Every printed number is counted: it comes from what the clients sent and from what the ledger contains. The clients
//! speak HTTP over TCP, like any other client, and know nothing about the gateway.

mod client;
pub mod payments;
pub mod story;
