//! Charges a card once: `charge ORDER CENTS`. Kill it whenever you like, and run it again.
//!
//! What lives here: everything that a service needs to make an effect happen once. What must never: more code
//! than fits on a screen.

use semel::payload::Json;
use semel::{
    Attempt, Class, Engine, Failed, Identity, Intent, Key, Operation, Policy, RunError, RunErrorReason, Scope,
};
use semel_sql::sqlite;
use std::{fs::OpenOptions, io::Write as _, sync::Arc, time::Duration};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [order, cents] = &arguments[..] else { return Err("usage: charge ORDER CENTS".into()) };
    let cents: u64 = cents.parse()?;
    let store = sqlite::Store::open("charges.db", sqlite::Options::default())?;
    let engine = Engine::builder(Arc::new(store)).build().await?;
    let scope = Scope::new(Identity::api_key("shop"), Operation::named("charge"));
    // After a kill, the order is blocked for three seconds.
    let policy = Policy::new(Class::External).with(|policy| policy.lease = Duration::from_secs(3))?;
    let intent = Intent::new(scope, Key::from_source(order)?, policy, Json::of(&cents)?);
    let intent = intent.waiting(Duration::from_secs(8));
    match engine.run(intent, move |attempt| card(attempt, cents)).await {
        Ok(done) if done.replayed => println!("{order} was charged before: {}", done.value),
        Ok(done) if done.stored => println!("{order} is charged: {}", done.value),
        Ok(done) => println!("{order} is charged, but that is not on disk yet: {}", done.value),
        Err(RunError { reason: RunErrorReason::Unknown, .. }) => {
            println!("{order} may be charged: a process died at it. It will not be charged again by itself;");
            println!("look whether card.ledger has it, then settle it or use a new order.");
        }
        Err(error) => println!("{order} was not charged now: {error}"),
    }
    engine.shutdown(Duration::from_secs(30)).await;
    Ok(())
}

/// The card provider: it writes a line, and answers two seconds later.
async fn card(attempt: Attempt, cents: u64) -> Result<String, Failed> {
    let line = format!("{} {cents}\n", attempt.operation_id());
    let ledger = OpenOptions::new().create(true).append(true).open("card.ledger");
    let charged = ledger.and_then(|mut ledger| ledger.write_all(line.as_bytes()));
    charged.map_err(|error| Failed::InDoubt(error.to_string()))?;
    println!("the card is charged and has not answered yet: kill me now");
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(format!("receipt {} over {cents} cents", attempt.operation_id()))
}
