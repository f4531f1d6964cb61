//! Erasing through the admin address: a retry does not run again, whatever the store.

use crate::world::{Gateway, KEY, Scratch};
use semel_test_support::client::Ask;
use semel_test_support::upstream::{Act, Upstream, response};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SECRET: &str = "the-account-of-ada-lovelace";

/// A gateway before a service that answers with a secret, and how often that was called.
async fn world() -> (Scratch, Upstream, Gateway, Arc<AtomicU32>) {
    let (scratch, calls) = (Scratch::new(), Arc::new(AtomicU32::new(0)));
    let counted = Arc::clone(&calls);
    let upstream = Upstream::start(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        Act::Say(response("201 Created", &[], SECRET))
    })
    .await;
    let gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    (scratch, upstream, gateway, calls)
}

#[tokio::test]
async fn a_retry_after_an_erasure_does_not_run_and_gets_nothing_of_the_response() {
    for (what, status, code) in [
        ("response", 409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED"),
        ("record", 410, "IDEMPOTENCY_RECORD_EXPIRED"),
    ] {
        let (_scratch, _upstream, mut gateway, calls) = world().await;
        let admin = gateway.admin();
        let charge = || Ask::post("/charges").key(KEY).send(gateway.address);
        let first = charge().await.expect("an answer");
        assert_eq!(first.text(), SECRET);
        let id = first.header("operation-id").expect("an id").to_owned();
        let body = format!("{{\"what\":\"{what}\",\"reason\":\"asked to\"}}");
        let erased =
            Ask::post(&format!("/v1/records/{id}/erase")).json(&body).send(admin).await.expect("an answer");
        assert_eq!(erased.status, 200, "{}", erased.text());
        let history = erased.json()["history"].as_array().cloned().unwrap_or_default();
        assert_eq!(
            history.last().map(|entry| entry["why"].clone()),
            Some(format!("erased the {what}: asked to").into())
        );
        let retry = charge().await.expect("an answer");
        assert_eq!(retry.status, status, "{}", retry.text());
        assert!(retry.text().contains(code) && !retry.text().contains(SECRET), "{}", retry.text());
        assert_eq!(calls.load(Ordering::SeqCst), 1, "{what}: it ran again");
    }
}
