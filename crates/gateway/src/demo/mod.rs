//! `semel serve --demo`: a payment service, a bad day on the network, and a ledger that tells how it went.
//!
//! **What lives here**: an upstream that keeps books ([`payments`]), clients that lose answers, click twice, die and
//! retry, and the story of both as it happens ([`story`]). **What must never**: a number that was not counted. What is
//! printed comes from what was really sent and from what the ledger really holds; and nothing here knows how the gateway
//! does it: the clients speak HTTP over TCP, as anybody's would.

mod client;
pub mod payments;
pub mod story;
