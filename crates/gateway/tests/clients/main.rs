//! `semel serve` among real clients, proxies and services.
//!
//! Each of them is the real program or library; `cargo xtask tools` provides them. Services put a line into a ledger for
//! everything they do, and answer with bytes that they never give twice: one line in the ledger and the same bytes again are
//! what every test here is about.

mod browser;
mod curl;
mod fronts;
mod grpc;
mod lossy;
mod process;
mod python;
mod stripe;
mod tools;
mod world;
