//! Erasing through the admin address: a retry does not run again, whatever the store.

use crate::store::{StoreKind, on_every_store};
use crate::world::{Gateway, KEY, Scratch};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Upstream, response};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;

const SECRET: &str = "the-account-of-ada-lovelace";

/// A gateway in front of a service that answers with a secret, and the number of calls to it.
async fn world(kind: StoreKind) -> (Scratch, Upstream, Gateway, Arc<AtomicU32>) {
    let (scratch, calls) = (Scratch::on(kind), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&calls);
    let upstream = Upstream::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Act::Say(response("201 Created", &[], SECRET))
    })
    .await;
    let gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    (scratch, upstream, gateway, calls)
}

async fn a_retry_after_an_erasure_neither_runs_nor_replays(kind: StoreKind) {
    for (extent, status, code) in [
        ("response", 409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED"),
        ("record", 410, "IDEMPOTENCY_RECORD_EXPIRED"),
    ] {
        let (_scratch, _upstream, mut gateway, calls) = world(kind).await;
        let admin = gateway.admin();
        let charge = || TestRequest::post("/charges").key(KEY).send(gateway.address);
        let first = charge().await.expect("an answer");
        assert_eq!(first.text(), SECRET);
        let id = first.header("operation-id").expect("an id").to_owned();
        let body = format!("{{\"what\":\"{extent}\",\"reason\":\"asked to\"}}");
        let erased = TestRequest::post(&format!("/v1/records/{id}/erase"))
            .json(&body)
            .send(admin)
            .await
            .expect("an answer");
        assert_eq!(erased.status, 200, "{}", erased.text());
        let history = erased.json()["history"].as_array().cloned().unwrap_or_default();
        assert_eq!(
            history.last().map(|entry| entry["why"].clone()),
            Some(format!("erased the {extent}: asked to").into())
        );
        let retry = charge().await.expect("an answer");
        assert_eq!(retry.status, status, "{}", retry.text());
        assert!(retry.text().contains(code) && !retry.text().contains(SECRET), "{}", retry.text());
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{extent}: it ran again");
    }
}

const ROUNDS: usize = 10;
const KEYS: usize = 8;

/// The erasure request for the key with this number.
fn erasure_of(number: usize) -> &'static str {
    if number.is_multiple_of(2) { "response" } else { "record" }
}

/// A gateway is killed with -9 while it erases. After its restart every record is complete or erased, every confirmed
/// erasure has happened, and no key has run again.
async fn a_kill_in_the_middle_leaves_every_record_whole_or_erased(kind: StoreKind) {
    let (scratch, calls) = (Scratch::on(kind), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&calls);
    let upstream = Upstream::start(move |seen| {
        counted.fetch_add(1, Ordering::SeqCst);
        let key = seen.header("idempotency-key").unwrap_or_default();
        Act::Say(response("201 Created", &[], format!("{SECRET} {key}")))
    })
    .await;
    let start = || Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    let (mut acknowledged, mut erased, mut intact) = (0, 0, 0);
    let mut gateway = start();
    for round in 0..ROUNDS {
        let charge = |number: usize, at: SocketAddr| {
            let ask = TestRequest::post("/charges").key(&format!("{KEY}-{round}-{number}"));
            async move { ask.send(at).await.expect("an answer") }
        };
        let mut firsts = Vec::new();
        for number in 0..KEYS {
            firsts.push(charge(number, gateway.address).await);
        }
        let admin = gateway.admin();
        let mut erasing = JoinSet::new();
        for (number, first) in firsts.iter().enumerate() {
            let id = first.header("operation-id").expect("an id").to_owned();
            let body = format!("{{\"what\":\"{}\",\"reason\":\"asked to\"}}", erasure_of(number));
            let ask = TestRequest::post(&format!("/v1/records/{id}/erase")).json(&body);
            erasing.spawn(async move { (number, ask.send(admin).await.map(|reply| reply.status)) });
        }
        let mut is_acknowledged = [false; KEYS];
        let mut note = |ended: Result<(usize, std::io::Result<u16>), _>| {
            let (number, status) = ended.expect("no panic");
            is_acknowledged[number] = status.is_ok_and(|status| status == 200);
        };
        // Each round kills a little later: before the first erasure, up to the last but one.
        for _ in 0..round % KEYS {
            note(erasing.join_next().await.expect("another erasure"));
        }
        gateway.kill();
        while let Some(ended) = erasing.join_next().await {
            note(ended);
        }
        gateway = start();
        for (number, first) in firsts.iter().enumerate() {
            let retry = charge(number, gateway.address).await;
            let is_whole = retry.status == 201 && retry.is_replay() && retry.text() == first.text();
            let code = match erasure_of(number) {
                "response" => "IDEMPOTENCY_RESPONSE_NOT_RETAINED",
                _ => "IDEMPOTENCY_RECORD_EXPIRED",
            };
            let is_erased = retry.code().as_deref() == Some(code) && !retry.text().contains(SECRET);
            assert!(is_erased || is_whole && !is_acknowledged[number], "{round}, {number}: {retry:?}");
            acknowledged += usize::from(is_acknowledged[number]);
            erased += usize::from(is_erased);
            intact += usize::from(is_whole);
        }
        let count = u32::try_from((round + 1) * KEYS).expect("small");
        assert_eq!(calls.load(Ordering::SeqCst), count, "a key ran again");
    }
    println!("{acknowledged} acknowledged, {erased} erased, {intact} whole after {ROUNDS} kills");
    assert!(acknowledged > 0 && intact > 0, "no kill was in the middle: {acknowledged}, {erased}, {intact}");
}

on_every_store! {
    a_retry_after_an_erasure_neither_runs_nor_replays,
    a_kill_in_the_middle_leaves_every_record_whole_or_erased,
}
