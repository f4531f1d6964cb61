//! Checks a store against every promise of the contract: `cargo run -p semel-testkit --example contract`
//!
//! This one is the memory store. In the tests of your own store, `semel_testkit::contract!` makes one test per promise.

use semel_testkit::{Subject, contract};

fn main() {
    contract::run_all(|| async { Subject::memory() });
    println!("every promise is kept");
}
