//! The admin address, where it is asked for.

use crate::client::{Ask, Reply};
use crate::upstream::{Act, Gate, Upstream, charged, response};
use crate::world::{Gateway, KEY, Scratch, until};
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
        "idempotency_attempts_total{operation=\"other\",state=\"SUCCEEDED\"} 1\n",
        "idempotency_store_seconds_count{call=\"insert\"} 1\n",
        "idempotency_in_progress{operation=\"other\"} 0\n",
        "idempotency_attempts_under_way 0\n",
    ] {
        assert!(numbers.contains(line), "{line} is not in {numbers}");
    }
    let records = sent(Ask::get("/v1/records?state=SUCCEEDED"), admin).await;
    let records = records.text();
    assert!(records.contains("POST /charges") && !records.contains("charged"), "{records}");
    assert_eq!(sent(Ask::get("/healthz"), gateway.address).await.text(), "charged", "the service's own path");
}

/// Waits until the numbers have this line.
async fn counted(admin: SocketAddr, line: &str) {
    until(async || sent(Ask::get("/metrics"), admin).await.text().contains(line).then_some(())).await;
}

#[tokio::test]
async fn what_stands_in_the_store_is_counted_by_route_and_never_by_path() {
    let scratch = Scratch::new();
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = Upstream::start(move |seen| match &seen.line {
        line if line.contains("/broken") => Act::End,
        line if line.contains("/slow") => Act::After(held.clone(), Box::new(charged(seen))),
        _ => charged(seen),
    })
    .await;
    scratch.configure(&format!(
        "[upstream]\nurl = \"http://{}\"\n[store]\nurl = 'sqlite:{}'\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [[operation]]\nname = \"charge\"\npath = \"/accounts/{{id}}/charges\"\n\
         [[operation]]\npath = \"/accounts/{{id}}/broken\"\n",
        upstream.address,
        scratch.file().display()
    ));
    let config = scratch.config();
    let mut gateway = Gateway::run(&scratch, &["--config", config.to_str().expect("text")]);
    let admin = gateway.admin();
    for account in 4711..4714 {
        for (path, status) in [("charges", 201), ("broken", 502)] {
            let ask = Ask::post(&format!("/accounts/{account}/{path}")).key(KEY);
            assert_eq!(
                sent(ask.with("authorization", format!("Bearer {account}")), gateway.address).await.status,
                status
            );
        }
    }
    for line in [
        "idempotency_store_up 1\n",
        "idempotency_store_records{state=\"SUCCEEDED\"} 3\n",
        "idempotency_store_records{state=\"UNKNOWN\"} 3\n",
        "idempotency_unknown{operation=\"/accounts/{id}/broken\"} 3\n",
        "idempotency_unknown{operation=\"charge\"} 0\n",
        "idempotency_records{operation=\"charge\",state=\"SUCCEEDED\"} 3\n",
        "idempotency_records{operation=\"/accounts/{id}/broken\",state=\"UNKNOWN\"} 3\n",
        "idempotency_records{operation=\"other\",state=\"UNKNOWN\"} 0\n",
        "idempotency_records_counted_timestamp_seconds ",
        "idempotency_store_hazards{severity=\"danger\"} 0\n",
        "semel_build_info{version=\"",
    ] {
        counted(admin, line).await;
    }
    let running = tokio::spawn(Ask::post("/slow").key(KEY).send(gateway.address));
    counted(admin, "idempotency_in_progress{operation=\"other\"} 1\n").await;
    gate.open();
    running.await.expect("no panic").expect("an answer");
    counted(admin, "idempotency_in_progress{operation=\"other\"} 0\n").await;
    let numbers = sent(Ask::get("/metrics"), admin).await;
    assert!(!numbers.text().contains("4711"), "{}", numbers.text());
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
