//! Opens a store in a file and reports what speaks against it: `cargo run -p semel-sql --example inspect -- semel.db`

use semel_core::store::Store as _;
use semel_sql::sqlite::{Options, Store};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: inspect FILE")?;
    let store = Store::open(&path, Options::default())?;
    let hazards = store.hazards().await?;
    if hazards.is_empty() {
        println!("{path}: nothing speaks against it");
    }
    for hazard in hazards {
        println!("{path}: {hazard:?}");
    }
    // Waits for writes that are running, and gives the file back.
    store.close().await;
    Ok(())
}
