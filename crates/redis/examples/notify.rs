//! Skips notifications that were delivered twice:
//!
//! `cargo run -p semel-redis --example notify -- redis://127.0.0.1:6379 m-1`
//!
//! Use it for messages that may occasionally be lost. Otherwise use an engine on the store, or an inbox.

use semel_redis::{MessageClaim, MessageDedup, MessageId};
use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, message] = &arguments[..] else { return Err("usage: notify URL MESSAGE_ID".into()) };
    let seen = MessageDedup::open(url, Duration::from_mins(10)).await?;
    let id = MessageId { group: "mailer", topic: "orders", message: message.as_bytes() };
    match seen.claim(&id).await? {
        MessageClaim::Fresh => println!("{message}: sending the notification"),
        MessageClaim::Seen => println!("{message}: it was handled within the last ten minutes"),
    }
    Ok(())
}
