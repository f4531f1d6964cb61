//! Messages that arrive twice, and a batch with one that fails:
//!
//! `cargo run -p semel-tx --features sqlite --example inbox`

use semel_tx::patterns::{Inbox, Message, MessageId, PatternError};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("semel-inbox-{}.db", std::process::id()));
    // Creates the tables.
    drop(semel_sql::sqlite::Store::open(&file, semel_sql::sqlite::Options::default())?);
    let mut connection = SqliteConnection::connect_with(&SqliteConnectOptions::new().filename(&file)).await?;
    sqlx::query("CREATE TABLE payments (id TEXT)").execute(&mut connection).await?;
    let inbox = Inbox::new("billing");
    let of = |id: &str, body: &str| Message::json("payments", MessageId::new(id)?, body);

    // One at a time, in your own transaction.
    for body in [r#"{"amount":5,"to":"x"}"#, r#"{"to":"x","amount":5.0}"#, r#"{"amount":500,"to":"x"}"#] {
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let result = inbox
            .once(&mut *transaction, &of("evt-1", body)?, |tx, message| {
                Box::pin(async move {
                    let insert = sqlx::query("INSERT INTO payments VALUES ($1)").bind(message.id().as_str());
                    insert.execute(tx).await?;
                    Ok(())
                })
            })
            .await;
        match result {
            Ok(result) => {
                transaction.commit().await?;
                println!("evt-1 {body}: {result:?}, acknowledge it");
            }
            Err(PatternError::Mismatch(_)) => println!("evt-1 {body}: another message, to the dead letters"),
            Err(error) => println!("evt-1 {body}: deliver it again, because {error}"),
        }
    }

    // Many at a time. The second is sent twice, and the third fails.
    let batch = [of("evt-2", "{}")?, of("evt-3", "{}")?, of("evt-4", r#"{"bad":true}"#)?, of("evt-3", "{}")?];
    let results = inbox
        .batch(&mut connection, &batch, |tx, message| {
            Box::pin(async move {
                let insert = sqlx::query("INSERT INTO payments VALUES ($1)").bind(message.id().as_str());
                insert.execute(tx).await?;
                if message.body().len() > 2 { Err("no such account".into()) } else { Ok(()) }
            })
        })
        .await?;
    for (message, result) in batch.iter().zip(results) {
        match result {
            Ok(result) => println!("{}: {result:?}, acknowledge it", message.id().as_str()),
            // Delivered again, it would be refused again.
            Err(PatternError::Mismatch(_)) => {
                println!("{}: another message, to the dead letters", message.id().as_str());
            }
            Err(error) => println!("{}: deliver it again, because {error}", message.id().as_str()),
        }
    }
    let payments: Vec<String> =
        sqlx::query_scalar("SELECT id FROM payments").fetch_all(&mut connection).await?;
    println!("payments: {payments:?}");
    println!("forgotten: {}", inbox.purge(&mut connection, 1_000).await?);
    connection.close().await?;
    Ok(std::fs::remove_file(file)?)
}
