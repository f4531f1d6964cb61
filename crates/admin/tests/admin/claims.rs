//! Claims: one attempt per command, for the first worker.

use super::client::Reply;
use super::world::{World, claim};
use semel::archive::rfc3339;
use semel_test_support::wait::until;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

async fn succeed(world: &World, attempt: &super::world::Attempt, response: &Value) {
    let outcome = attempt.with(&json!({ "outcome": "succeeded", "response": response }));
    let reply = world.post(&attempt.at("outcome"), &outcome).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// A member of a problem.
fn member(reply: &Reply, name: &str) -> Value {
    serde_json::from_str::<Value>(reply.text()).expect("JSON")[name].clone()
}

#[tokio::test]
async fn of_fifty_who_claim_at_once_one_gets_the_attempt() {
    let world = World::new().await;
    let body = claim("order-1", &json!({}));
    let claims = (0..50).map(|_| world.ask("POST", "/v1/claims").json(&body).send());
    let replies = futures_util::future::join_all(claims).await;
    let (won, lost): (Vec<_>, Vec<_>) = replies.into_iter().partition(|reply| reply.status == 201);
    assert_eq!((won.len(), lost.len()), (1, 49));
    for reply in lost {
        assert_eq!(reply.problem(), (409, "IDEMPOTENCY_REQUEST_IN_PROGRESS".into()));
        assert_eq!(reply.retry_after(), Some(1));
    }
}

#[tokio::test]
async fn a_claim_response_has_everything_a_worker_needs() {
    let world = World::new().await;
    let reply = world.post("/v1/claims", &claim("order-1", &json!({ "leaseMs": 9_000 }))).await;
    let claimed = reply.json();
    assert_eq!((reply.status, &claimed["result"]), (201, &json!("claimed")));
    assert_eq!((&claimed["attempt"], claimed["token"].as_str().map(str::len)), (&json!(1), Some(32)));
    assert_eq!(claimed["leaseExpiresAt"], rfc3339::text(world.now() + Duration::from_secs(9)));
    assert_eq!(claimed["fence"], world.now().as_millis());
    let record = world.record(claimed["operationId"].as_str().expect("an id")).await;
    assert_eq!(record.policy().class.name(), "external");
}

#[tokio::test]
async fn what_was_done_is_replayed_byte_for_byte() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    succeed(
        &world,
        &attempt,
        &json!({ "status": 201, "headers": [["etag", "\"7\""]], "bodyBase64": "/wD+" }),
    )
    .await;
    let reply = world.post("/v1/claims", &claim("order-1", &json!({}))).await;
    let replayed = reply.json();
    assert_eq!(
        (reply.status, &replayed["result"], &replayed["state"]),
        (200, &json!("replayed"), &json!("SUCCEEDED"))
    );
    assert_eq!(replayed["operationId"], attempt.id.as_str());
    assert_eq!(replayed["expiresAt"], rfc3339::text(world.now() + Duration::from_hours(24)));
    let expected = json!({
        "protocol": "http", "status": 201, "retained": true, "headers": [["etag", "\"7\""]], "bodyBase64": "/wD+",
        "body_base64": "/wD+",
    });
    assert_eq!(replayed["response"], expected);
}

#[tokio::test]
async fn a_refusal_for_good_is_replayed_too() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let failed = json!({ "outcome": "failed", "response": { "status": 402, "body": "declined" } });
    assert_eq!(
        world.post(&attempt.at("outcome"), &attempt.with(&failed)).await.json()["state"],
        "FAILED_REPLAYABLE"
    );
    let replayed = world.post("/v1/claims", &claim("order-1", &json!({}))).await.json();
    assert_eq!(
        (&replayed["state"], &replayed["response"]["body"]),
        (&json!("FAILED_REPLAYABLE"), &json!("declined"))
    );
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_refused_in_every_state() {
    let world = World::new().await;
    let other = claim("order-1", &json!({ "payload": { "amount": 6 } }));
    let attempt = world.claimed("order-1", &json!({})).await;
    let running = world.post("/v1/claims", &other).await;
    assert_eq!(running.problem(), (422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST".into()));
    succeed(&world, &attempt, &json!({ "status": 200 })).await;
    assert_eq!(world.post("/v1/claims", &other).await.problem().0, 422);
}

#[tokio::test]
async fn payloads_are_compared_by_what_they_mean() {
    let world = World::new().await;
    let same = [
        (r#"{"a": 1, "b": [1, 2]}"#, r#"{"b":[1.0,2e0],"a":1}"#),
        ("null", " null "),
        ("123456789012345678901234567890123456789012345", "123456789012345678901234567890123456789012345.0"),
    ];
    let different = [
        ("9007199254740993", "9007199254740992"),
        (r#"{"a": null}"#, "{}"),
        ("[1, 2]", "[2, 1]"),
        ("\"1\"", "1"),
        ("1e400", "1e401"),
    ];
    let send = async |key: &str, payload: &str| {
        let body = format!(r#"{{"operation": "charge", "key": "{key}", "payload": {payload}}}"#);
        let ask = world.ask("POST", "/v1/claims").text(&body).header("content-type", "application/json");
        ask.send().await.status
    };
    for (number, (one, other)) in same.iter().enumerate() {
        let key = format!("same-{number}");
        assert_eq!((send(&key, one).await, send(&key, other).await), (201, 409), "{one} {other}");
    }
    for (number, (one, other)) in different.iter().enumerate() {
        let key = format!("different-{number}");
        assert_eq!((send(&key, one).await, send(&key, other).await), (201, 422), "{one} {other}");
    }
    assert_eq!(send("twice", r#"{"a": 1, "a": 2}"#).await, 400);
}

#[tokio::test]
async fn old_names_of_fields_are_still_accepted() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "payload_base64": "/wD+" })).await;
    let same = claim("order-1", &json!({ "payloadBase64": "/wD+" }));
    assert_eq!(
        world.post("/v1/claims", &same).await.problem().0,
        409,
        "the same payload under the new member name"
    );
    let changed = claim("order-1", &json!({ "payload_base64": "/wD/" }));
    assert_eq!(world.post("/v1/claims", &changed).await.problem().0, 422);
    succeed(&world, &attempt, &json!({ "status": 200, "body_base64": "/wD+" })).await;
    let replayed = world.post("/v1/claims", &same).await.json();
    assert_eq!(replayed["response"]["bodyBase64"], "/wD+");
    assert_eq!(replayed["response"]["body_base64"], "/wD+");
    let described = world.get("/openapi.json").await.json();
    let schemas = &described["components"]["schemas"];
    for (schema, new, old) in [
        ("Claim", "payloadBase64", "payload_base64"),
        ("GivenResponse", "bodyBase64", "body_base64"),
        ("StoredResponse", "bodyBase64", "body_base64"),
    ] {
        let properties = &schemas[schema]["properties"];
        assert!(properties[new].is_object() && properties[new]["deprecated"] != true, "{schema} {new}");
        assert_eq!(properties[old]["deprecated"], true, "{schema} {old}");
    }
}

#[tokio::test]
async fn bytes_and_hashes_are_payloads_too() {
    let world = World::new().await;
    let raw = json!({ "payloadBase64": "/wD+" });
    world.claimed("order-1", &raw).await;
    assert_eq!(world.post("/v1/claims", &claim("order-1", &raw)).await.problem().0, 409);
    let changed = world.post("/v1/claims", &claim("order-1", &json!({ "payloadBase64": "/wD/" }))).await;
    assert_eq!(changed.problem().0, 422);
    let hash = json!({ "fingerprint": "ab".repeat(32) });
    world.claimed("order-2", &hash).await;
    assert_eq!(world.post("/v1/claims", &claim("order-2", &hash)).await.problem().0, 409);
    let changed =
        world.post("/v1/claims", &claim("order-2", &json!({ "fingerprint": "ac".repeat(32) }))).await;
    assert_eq!(changed.problem().0, 422);
}

#[tokio::test]
async fn the_same_key_in_another_scope_is_another_command() {
    let world = World::new().await;
    let scopes = [
        json!({}),
        json!({ "caller": "alice" }),
        json!({ "caller": "bob" }),
        json!({ "tenant": "alice" }),
        json!({ "tenant": "acme", "caller": "alice" }),
        json!({ "operation": "refund" }),
    ];
    let mut seen = std::collections::BTreeSet::new();
    for scope in &scopes {
        assert!(seen.insert(world.claimed("order-1", scope).await.id), "{scope}");
    }
}

#[tokio::test]
async fn after_an_attempt_that_took_no_effect_comes_the_next() {
    let world = World::new().await;
    let first = world.claimed("order-1", &json!({})).await;
    let outcome = first.with(&json!({ "outcome": "not-applied" }));
    assert_eq!(world.post(&first.at("outcome"), &outcome).await.json()["state"], "FAILED_NOT_REPLAYABLE");
    let second = world.post("/v1/claims", &claim("order-1", &json!({}))).await.json();
    assert_eq!((&second["attempt"], &second["operationId"]), (&json!(2), &json!(first.id)));
    assert_ne!(second["token"], first.token.as_str());
}

#[tokio::test]
async fn a_waiting_claim_gets_the_running_attempts_outcome() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let waiting =
        world.ask("POST", "/v1/claims").json(&claim("order-1", &json!({ "waitMs": 60_000 }))).send();
    let waiting = tokio::spawn(waiting);
    while world.clock.next_wake().is_none_or(|pause| pause > Duration::from_secs(1)) {
        tokio::task::yield_now().await;
    }
    succeed(&world, &attempt, &json!({ "status": 200, "body": "done" })).await;
    let reply = world.pass_until(waiting).await;
    assert_eq!((reply.status, &reply.json()["response"]["body"]), (200, &json!("done")));
}

/// Waiting claims must not block renewals, outcomes and health checks, which use the same address.
#[tokio::test]
async fn beyond_the_limit_of_waiters_a_claim_is_answered_at_once() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "leaseMs": 60_000 })).await;
    let wait = claim("order-1", &json!({ "waitMs": 30_000 }));
    let mut waiting = tokio::task::JoinSet::new();
    for number in 1..=576 {
        waiting.spawn(world.ask("POST", "/v1/claims").json(&wait).send());
        // The listener accepts a limited number of connections at a time.
        if number % 32 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // The clock of the gateway stands still: only those that may not wait are answered.
    let answered = async {
        loop {
            if let Ok(reply) = waiting.join_next().await.expect("more than may wait") {
                return reply;
            }
        }
    };
    let answered = tokio::time::timeout(Duration::from_mins(1), answered).await;
    let reply = answered.expect("an immediate answer");
    assert_eq!(reply.problem(), (409, "IDEMPOTENCY_REQUEST_IN_PROGRESS".into()));
    assert_eq!(world.post(&attempt.at("renew"), &attempt.with(&json!({}))).await.status, 200);
    drop(waiting);
}

#[tokio::test]
async fn a_claim_that_waits_begins_nothing_itself() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "leaseMs": 1_000, "class": "downstream" })).await;
    let waiting = world.ask("POST", "/v1/claims").json(&claim("order-1", &json!({ "waitMs": 5_000 }))).send();
    let waiting = tokio::spawn(waiting);
    while world.clock.next_wake().is_none_or(|pause| pause > Duration::from_secs(1)) {
        tokio::task::yield_now().await;
    }
    let reply = world.pass_until(waiting).await;
    assert_eq!(reply.problem(), (409, "IDEMPOTENCY_REQUEST_IN_PROGRESS".into()));
    assert_eq!(world.record(&attempt.id).await.attempt(), 1);
    assert_eq!(world.post("/v1/claims", &claim("order-1", &json!({}))).await.json()["attempt"], 2);
}

#[tokio::test]
async fn a_dead_attempt_is_unknown_or_taken_over_by_class() {
    let world = World::new().await;
    let external = world.claimed("order-a", &json!({ "leaseMs": 1_000 })).await;
    let downstream = json!({ "leaseMs": 1_000, "class": "downstream" });
    let first = world.claimed("order-b", &downstream).await;
    let reserved = world.claimed("order-c", &json!({ "leaseMs": 1_000, "mode": "reserved" })).await;
    world.pass(Duration::from_secs(1));
    let unknown = world.post("/v1/claims", &claim("order-a", &json!({}))).await;
    assert_eq!(unknown.problem(), (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".into()));
    assert_eq!(world.state(&external.id).await, "UNKNOWN");
    let second = world.post("/v1/claims", &claim("order-b", &downstream)).await.json();
    assert_eq!((&second["operationId"], &second["attempt"]), (&json!(first.id), &json!(2)));
    let again = world.post("/v1/claims", &claim("order-c", &json!({}))).await.json();
    assert_eq!((&again["operationId"], &again["attempt"]), (&json!(reserved.id), &json!(2)));
}

#[tokio::test]
async fn an_expired_key_differs_from_a_new_one() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "ttlMs": 60_000 })).await;
    succeed(&world, &attempt, &json!({ "status": 200 })).await;
    world.pass(Duration::from_mins(1));
    let late = world.post("/v1/claims", &claim("order-1", &json!({}))).await;
    assert_eq!(late.problem(), (410, "IDEMPOTENCY_RECORD_EXPIRED".into()));
}

#[tokio::test]
async fn an_incomplete_or_ambiguous_claim_is_refused() {
    let world = World::new().await;
    let long = "x".repeat(256);
    let bad = [
        json!({ "key": "k", "payload": 1 }),
        json!({ "operation": "charge", "payload": 1 }),
        json!({ "operation": "charge", "key": "k" }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "fingerprint": "ab".repeat(32) }),
        json!({ "operation": "charge", "key": "k", "payloadBase64": "x" }),
        json!({ "operation": "charge", "key": "k", "payload_base64": "x" }),
        json!({ "operation": "charge", "key": "k", "payloadBase64": "/w==", "payload_base64": "/w==" }),
        json!({ "operation": "charge", "key": "k", "fingerprint": "ab" }),
        json!({ "operation": "", "key": "k", "payload": 1 }),
        json!({ "operation": long, "key": "k", "payload": 1 }),
        json!({ "operation": "a\nb", "key": "k", "payload": 1 }),
        json!({ "operation": "(shadow) POST /charges", "key": "k", "payload": 1 }),
        json!({ "operation": "charge", "key": "", "payload": 1 }),
        json!({ "operation": "charge", "key": long, "payload": 1 }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "caller": "" }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "class": "local" }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "mode": "now" }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "leaseMs": 499 }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "leaseMs": 3_600_001 }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "leaseMs": 60_000, "ttlMs": 1_000 }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "waitMs": 60_001 }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "class": "downstream", "dedupWindowMs": 1 }),
        json!({ "operation": "charge", "key": "k", "payload": 1, "lease": 5 }),
        json!([]),
    ];
    for body in bad {
        assert_eq!(world.post("/v1/claims", &body).await.problem().0, 400, "{body}");
    }
    assert_eq!(world.get("/v1/records").await.json()["records"], json!([]));
}

#[tokio::test]
async fn a_claim_of_class_local_is_refused_with_an_alternative() {
    let world = World::new().await;
    let body = json!({ "operation": "charge", "key": "k", "payload": 1, "class": "local" });
    let reply = world.post("/v1/claims", &body).await;
    assert_eq!(reply.problem(), (400, "INVALID_REQUEST".into()));
    let detail = member(&reply, "detail").to_string();
    assert!(["transaction", "external", "downstream"].iter().all(|word| detail.contains(word)), "{detail}");
    assert_eq!(world.get("/v1/records").await.json()["records"], json!([]));
}

#[tokio::test]
async fn class_and_window_decide_whether_doubt_is_retryable() {
    let world = World::new().await;
    let in_doubt = async |key: &str, class: &str| {
        let attempt = world.claimed(key, &json!({ "class": class })).await;
        let ended = attempt.with(&json!({ "outcome": "unknown" }));
        assert_eq!(world.post(&attempt.at("outcome"), &ended).await.status, 200);
    };
    let retryable = async |key: &str, class: &str| {
        let reply = world.post("/v1/claims", &claim(key, &json!({ "class": class }))).await;
        (reply.problem(), member(&reply, "retryable"))
    };
    let unknown = || (409, "IDEMPOTENCY_OUTCOME_UNKNOWN".to_owned());
    in_doubt("order-1", "external").await;
    assert_eq!(
        retryable("order-1", "downstream").await,
        (unknown(), json!(false)),
        "the class of the original claim counts"
    );
    in_doubt("order-2", "downstream").await;
    world.pass(Duration::from_hours(24));
    assert_eq!(retryable("order-2", "downstream").await, (unknown(), json!(false)), "its window is over");
}

#[tokio::test]
async fn without_a_store_nothing_is_claimed() {
    let world = World::new().await;
    world.lose_store().await;
    let reply = world.post("/v1/claims", &claim("order-1", &json!({}))).await;
    assert_eq!(reply.problem(), (503, "IDEMPOTENCY_STORE_UNAVAILABLE".into()));
}

#[tokio::test]
async fn long_replays_that_nobody_reads_take_bounded_memory() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let response = json!({ "status": 200, "body": "x".repeat(9 << 20) });
    let ended = attempt.with(&json!({ "outcome": "succeeded", "response": response }));
    assert_eq!(world.post(&attempt.at("outcome"), &ended).await.status, 200);
    let again = claim("order-1", &json!({}));
    let body = again.to_string();
    let request = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        world.address,
        body.len()
    );
    let open = async || {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("set");
        let mut stream = socket.connect(world.address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("sent");
        stream
    };
    // 64 MiB are enough for seven, or for fewer while the reply to the question is being sent.
    let mut silent = vec![open().await];
    let busy = until(async || {
        let reply = world.post("/v1/claims", &again).await;
        if reply.status == 200 {
            // The last one may have been refused because of this reply.
            silent.push(open().await);
        }
        (reply.status == 503).then_some(reply)
    });
    let busy = busy.await;
    assert_eq!(busy.problem(), (503, "GATEWAY_BUSY".into()));
    assert_eq!(world.post("/v1/claims", &claim("order-2", &json!({}))).await.status, 201, "a short response");
    drop(silent);
    let again = until(async || {
        let reply = world.post("/v1/claims", &again).await;
        (reply.status == 200).then_some(reply)
    });
    assert_eq!(again.await.json()["result"], "replayed");
}
