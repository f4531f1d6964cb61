//! Checks a store against every promise of the contract: `cargo run -p semel-testkit --example contract`
//!
//! Here it is the store in memory. In the tests of your own store, `semel_testkit::contract!` makes a test of each promise.

use semel_testkit::{Subject, contract};

fn main() {
    contract::run_all(|| async { Subject::memory() });
    println!("every promise is kept");
}
