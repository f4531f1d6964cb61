//! Opens a store in a file and reports its hazards: `cargo run -p semel-sql --example inspect -- semel.db`

use semel_core::store::Store as _;
use semel_sql::sqlite::{Options, Store};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: inspect FILE")?;
    let store = Store::open(&path, Options::default())?;
    let hazards = store.hazards().await?;
    if hazards.is_empty() {
        println!("{path}: no hazards");
    }
    for hazard in hazards {
        println!("{path}: {hazard:?}");
    }
    // Waits for running writes, and closes the file.
    store.close().await;
    Ok(())
}
