//! Compares Semel with the crate axum-idempotent: the same handler, server and run. Measures the cost of
//! each, and shows how each handles duplicates, changed payloads and a crash.
//!
//! `cargo xtask bench peers [--seconds N] [--clients N,…] [--rounds N]`. `SEMEL_TEST_VALKEY_URL` names the
//! server: the other crate's store needs commands of Redis 7.4 or Valkey 9.

mod client;
mod load;
mod scenarios;
mod service;

use service::Kind;
use std::error::Error;
use std::time::Duration;

const HELP: &str = "cargo xtask bench peers [--seconds N] [--clients N,…] [--rounds N]";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = std::env::var("SEMEL_TEST_VALKEY_URL").map_err(|_| "SEMEL_TEST_VALKEY_URL is not set")?;
    let (mut seconds, mut clients, mut rounds) = (3, vec![16, 64], 3);
    while let Some(name) = arguments.next() {
        if name == "--help" {
            println!("usage: {HELP}");
            return Ok(());
        }
        let value = arguments.next().ok_or(HELP)?;
        match name.as_str() {
            // The argument with which this program runs itself as a service.
            "--serve" => {
                let prefix = arguments.next().ok_or(HELP)?;
                return service::serve(Kind::named(&value).ok_or(HELP)?, &url, &prefix).await;
            }
            "--seconds" => seconds = value.parse()?,
            "--rounds" => rounds = value.parse()?,
            "--clients" => clients = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            _ => return Err(HELP.into()),
        }
    }
    let prefix = format!("peers-{}", std::process::id());
    println!("Charges for one payment, by the handler's own ledger, and the status of the last response\n");
    scenarios::compare(&url, &prefix).await?;
    println!(
        "\nRequests per second, medians of {rounds} turns of {seconds} s; ratios are to the handler without a layer\n"
    );
    for clients in clients {
        load::compare(&prefix, clients, Duration::from_secs(seconds), rounds).await?;
    }
    service::clean(&url, &prefix).await
}
