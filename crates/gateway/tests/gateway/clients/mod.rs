//! `semel serve` among real clients, proxies and services.
//!
//! Each of them is the real program or library; `cargo xtask tools` provides them. Services write a line to a ledger
//! for each effect and never send the same bytes twice. Every test expects one line in the ledger and the same bytes
//! for a retry.

mod browser;
mod curl;
mod fronts;
mod grpc;
mod lossy;
mod process;
mod python;
mod stripe;
mod world;
