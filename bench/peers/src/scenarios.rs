//! How each layer handles retries.

use crate::client::{Client, Reply};
use crate::service::{Kind, Ledger, Service};
use std::error::Error;
use std::time::Duration;
use tokio::task::JoinSet;

const PAYMENT: &str = r#"{"amount": 500, "currency": "EUR"}"#;
const REORDERED: &str = r#"{"currency":"EUR","amount":500}"#;
const OTHER: &str = r#"{"amount": 900, "currency": "EUR"}"#;

type Report = Result<String, Box<dyn Error>>;

/// One line per situation, one column per layer.
pub(crate) async fn compare(url: &str, prefix: &str) -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::connect(url, prefix).await?;
    let kinds = [Kind::Semel, Kind::OtherByKey, Kind::OtherByHash];
    let names = [
        "20 duplicates at once",
        "a retry, JSON reordered",
        "other payload, same key",
        "kill -9 before the answer",
    ];
    let mut columns = Vec::new();
    for kind in kinds {
        columns.push([
            duplicates(kind, prefix, &ledger).await?,
            reordered(kind, prefix, &ledger).await?,
            other_payload(kind, prefix, &ledger).await?,
            killed(kind, prefix, &ledger).await?,
        ]);
    }
    println!("{:<26} {:<24} {:<24} {}", "", kinds[0].name(), kinds[1].name(), kinds[2].name());
    for (line, name) in names.iter().enumerate() {
        println!("{name:<26} {:<24} {:<24} {}", columns[0][line], columns[1][line], columns[2][line]);
    }
    Ok(())
}

async fn effects(kind: Kind, ledger: &Ledger, key: &str, reply: &Reply) -> Report {
    let effects = ledger.effects(kind, key).await?;
    let plural = if effects == 1 { "" } else { "s" };
    Ok(format!("{effects} charge{plural}, {}", reply.status))
}

async fn duplicates(kind: Kind, prefix: &str, ledger: &Ledger) -> Report {
    let (service, key) = (Service::start(kind, prefix).await?, "duplicates-of-one-payment");
    let first = Client::connect(service.address).await?;
    let mut sent = JoinSet::new();
    for _ in 0..20 {
        let mut client = first.reconnect(service.address).await?;
        sent.spawn(async move {
            client.post("/charge", key, "", PAYMENT).await.map_err(|error| error.to_string())
        });
    }
    let mut last = None;
    for reply in sent.join_all().await {
        last = Some(reply?);
    }
    effects(kind, ledger, key, &last.ok_or("no answer")?).await
}

async fn reordered(kind: Kind, prefix: &str, ledger: &Ledger) -> Report {
    let (service, key) = (Service::start(kind, prefix).await?, "reordered-payment-of-a-shop");
    let mut client = Client::connect(service.address).await?;
    client.post("/charge", key, "", PAYMENT).await?;
    let retry = client.post("/charge", key, "", REORDERED).await?;
    effects(kind, ledger, key, &retry).await
}

async fn other_payload(kind: Kind, prefix: &str, ledger: &Ledger) -> Report {
    let (service, key) = (Service::start(kind, prefix).await?, "one-key-for-two-payments");
    let mut client = Client::connect(service.address).await?;
    let first = client.post("/charge", key, "", PAYMENT).await?;
    let other = client.post("/charge", key, "", OTHER).await?;
    let report = effects(kind, ledger, key, &other).await?;
    let is_wrong = other.status == first.status && other.body == first.body;
    Ok(if is_wrong { format!("{report} of the first") } else { report })
}

async fn killed(kind: Kind, prefix: &str, ledger: &Ledger) -> Report {
    let (service, key) = (Service::start(kind, prefix).await?, "payment-of-a-killed-service");
    let mut client = Client::connect(service.address).await?;
    client.send("/charge", key, "x-hang: yes\r\n", PAYMENT).await?;
    while ledger.effects(kind, key).await? == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    service.kill().await?;
    let service = Service::start(kind, prefix).await?;
    let mut client = client.reconnect(service.address).await?;
    // Until no response says that the request is still running.
    for _ in 0..60 {
        let reply = client.post("/charge", key, "", PAYMENT).await?;
        if !reply.body.contains("IN_PROGRESS") {
            return effects(kind, ledger, key, &reply).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Err("it is in progress for ever".into())
}
