//! The admin address, where it is asked for.

use crate::client::{Ask, Reply};
use crate::upstream::{Act, Upstream, response};
use crate::world::{Gateway, KEY, Scratch};
use std::net::SocketAddr;

async fn sent(ask: Ask, to: SocketAddr) -> Reply {
    ask.send(to).await.expect("an answer")
}

#[tokio::test]
async fn an_admin_address_shows_health_numbers_and_records() {
    let scratch = Scratch::new();
    let upstream = Upstream::start(|_| Act::Say(response("201 Created", &[], "charged"))).await;
    let mut gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    let admin = gateway.admin();
    for _ in 0..2 {
        let reply = sent(Ask::post("/charges").key(KEY), gateway.address).await;
        assert_eq!(reply.text(), "charged");
    }
    assert_eq!(sent(Ask::get("/healthz"), admin).await.status, 200);
    assert_eq!(sent(Ask::get("/readyz"), admin).await.status, 200);
    let numbers = sent(Ask::get("/metrics"), admin).await;
    let numbers = numbers.text();
    for line in [
        "idempotency_claims_total{operation=\"other\",outcome=\"ran\"} 1\n",
        "idempotency_claims_total{operation=\"other\",outcome=\"replayed\"} 1\n",
        "idempotency_replays_total{operation=\"other\"} 1\n",
        "idempotency_attempts_total{state=\"SUCCEEDED\"} 1\n",
        "idempotency_store_seconds_count{call=\"insert\"} 1\n",
        "idempotency_in_progress 0\n",
    ] {
        assert!(numbers.contains(line), "{line} is not in {numbers}");
    }
    let records = sent(Ask::get("/v1/records?state=SUCCEEDED"), admin).await;
    let records = records.text();
    assert!(records.contains("POST /charges") && !records.contains("charged"), "{records}");
    assert_eq!(sent(Ask::get("/healthz"), gateway.address).await.text(), "charged", "the service's own path");
}

#[tokio::test]
async fn no_admin_address_is_opened_to_other_machines() {
    let told = std::process::Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--upstream", "http://127.0.0.1:1"])
        .args(["--admin", "0.0.0.0:0"])
        .output()
        .expect("semel runs");
    assert_eq!(told.status.code(), Some(1));
    let why = String::from_utf8_lossy(&told.stderr);
    assert!(why.contains("can be reached from other machines"), "{why}");
}
