//! Charges once, however often it is called: `cargo run -p semel --example once`
//!
//! The records are in memory here. `examples/charge` keeps them in a file, and survives `kill -9`.

use semel::payload::Json;
use semel::{Class, Engine, Failed, Identity, Intent, Key, Operation, Policy, Scope, memory};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

fn charge(order: &str, cents: u64) -> Result<Intent, Box<dyn Error>> {
    let scope = Scope::new(Identity::api_key("shop"), Operation::named("charge"));
    Ok(Intent::new(scope, Key::from_source(order)?, Policy::new(Class::External), Json::of(&cents)?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let engine = Engine::builder(Arc::new(memory::Store::new())).build().await?;
    for attempt in 1..=3 {
        let work = |attempt: semel::Attempt| async move {
            println!("  charging the card for operation {}", attempt.operation_id());
            Ok::<_, Failed>("receipt 7".to_owned())
        };
        let done = engine.run(charge("order-1234", 500)?, work).await?;
        println!("call {attempt}: {} (replayed: {})", done.value, done.replayed);
    }
    // The same order with another amount is a mistake and is refused.
    let refused = engine.run(charge("order-1234", 900)?, |_| async { Ok::<_, Failed>(String::new()) }).await;
    if let Err(error) = refused {
        println!("another amount: {error}");
    }
    // Before the process ends: waits for running attempts and stores their outcomes.
    engine.shutdown(Duration::from_secs(30)).await;
    Ok(())
}
