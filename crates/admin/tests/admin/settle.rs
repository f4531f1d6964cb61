//! Operators' actions.

use super::client::AdminRequest;
use super::world::{World, token};
use axum::Router;
use axum::routing::post;
use http::StatusCode;
use semel::core::outcome::{Outcome, Status};
use semel::core::record::State;
use semel_admin::Role;
use semel_http::{Layer, RouteSettings};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;

const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
const WHY: &str = "the provider's ledger";

/// A service behind the layer whose only handler fails with an unknown outcome.
struct Doubtful {
    address: SocketAddr,
    calls: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Doubtful {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Doubtful {
    async fn on(world: &World) -> Self {
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let handler = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            async { StatusCode::INTERNAL_SERVER_ERROR }
        };
        let layer = Layer::new(world.engine.clone(), RouteSettings::default()).expect("fit");
        let app = Router::new().route("/charges", post(handler)).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("served") });
        Self { address, calls, task }
    }

    async fn charge(&self) -> super::client::Reply {
        let ask = AdminRequest::new(self.address, "POST", "/charges").header("idempotency-key", KEY);
        ask.json(&json!({ "amount": 5 })).send().await
    }

    /// Charges once, which leaves the outcome unknown.
    async fn doubt(&self) -> String {
        let reply = self.charge().await;
        assert_eq!(reply.status, 500);
        reply.header("operation-id").expect("an id").to_owned()
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

fn resolve(id: &str) -> String {
    format!("/v1/records/{id}/resolve")
}

fn release(id: &str) -> String {
    format!("/v1/records/{id}/release")
}

fn applied(response: Option<Value>) -> Value {
    match response {
        Some(response) => json!({ "outcome": "applied", "response": response, "reason": WHY }),
        None => json!({ "outcome": "applied", "reason": WHY }),
    }
}

#[tokio::test]
async fn an_outcome_that_an_operator_resolved_is_replayed() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    assert_eq!(service.charge().await.problem().1, "IDEMPOTENCY_OUTCOME_UNKNOWN");
    let response = json!({ "status": 201, "headers": [["location", "/charges/7"]], "body_base64": "/wD+" });
    let settled = world.post(&resolve(&id), &applied(Some(response))).await;
    assert_eq!(settled.status, 200, "{}", settled.text());
    assert_eq!(settled.json()["state"], "SUCCEEDED");
    let replay = service.charge().await;
    assert_eq!((replay.status, replay.body.as_slice()), (201, [0xff, 0x00, 0xfe].as_slice()));
    assert_eq!(replay.header("location"), Some("/charges/7"));
    assert_eq!(replay.header("idempotency-replayed"), Some("true"));
    assert_eq!(service.calls(), 1, "no second effect");
    let history = world.get(&format!("/v1/records/{id}")).await.json()["history"].clone();
    let last = history.as_array().and_then(|entries| entries.last()).expect("a history").clone();
    assert_eq!(
        (&last["who"], &last["why"], &last["state"]),
        (&json!("loopback"), &json!(format!("resolved as applied: {WHY}")), &json!("SUCCEEDED"))
    );
}

#[tokio::test]
async fn the_history_names_the_token_that_settled_it() {
    let world = World::with(|options| options.tokens = vec![token("maria", &[Role::Operate])]).await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    let settled = world.ask("POST", &resolve(&id)).token("maria-secret").json(&applied(None)).send().await;
    let settled = settled.json();
    let last = settled["history"].as_array().and_then(|entries| entries.last()).expect("a history").clone();
    assert_eq!(
        (&last["who"], &last["why"]),
        (&json!("maria"), &json!(format!("resolved as applied: {WHY}")))
    );
}

#[tokio::test]
async fn applied_without_a_response_replays_as_not_retained() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    assert_eq!(world.post(&resolve(&id), &applied(None)).await.status, 200);
    assert_eq!(service.charge().await.problem(), (409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED".into()));
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn failed_replays_its_refusal_and_needs_one() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    for response in
        [Value::Null, json!({ "status": 200 }), json!({ "status": 399 }), json!({ "status": 600 })]
    {
        let mut body = json!({ "outcome": "failed", "reason": WHY });
        if !response.is_null() {
            body["response"] = response;
        }
        assert_eq!(
            world.post(&resolve(&id), &body).await.problem(),
            (400, "INVALID_REQUEST".into()),
            "{body}"
        );
    }
    let body =
        json!({ "outcome": "failed", "reason": WHY, "response": { "status": 402, "body": "declined" } });
    assert_eq!(world.post(&resolve(&id), &body).await.json()["state"], "FAILED_REPLAYABLE");
    let replay = service.charge().await;
    assert_eq!((replay.status, replay.text()), (402, "declined"));
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn not_applied_lets_the_next_request_run() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    let body = json!({ "outcome": "not-applied", "reason": WHY });
    // The owner ended the attempt itself: no quiet period is needed.
    assert_eq!(world.post(&resolve(&id), &body).await.json()["state"], "FAILED_NOT_REPLAYABLE");
    assert_eq!(service.charge().await.status, 500);
    assert_eq!(service.calls(), 2);
    assert_eq!(world.record(&id).await.attempt(), 2);
}

#[tokio::test]
async fn an_action_without_a_reason_is_refused() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    let long = "x".repeat(257);
    for reason in [json!(null), json!(""), json!("  "), json!("two\nlines"), json!(7), json!(long)] {
        let body = json!({ "outcome": "applied", "reason": reason });
        assert_eq!(world.post(&resolve(&id), &body).await.problem().0, 400, "{reason}");
        assert_eq!(world.post(&release(&id), &json!({ "reason": reason })).await.problem().0, 400);
    }
    assert_eq!(world.post(&resolve(&id), &json!({ "outcome": "applied" })).await.problem().0, 400);
    assert_eq!(world.post(&release(&id), &json!({})).await.problem().0, 400);
    for outcome in ["succeeded", "APPLIED", ""] {
        let body = json!({ "outcome": outcome, "reason": WHY });
        assert_eq!(world.post(&resolve(&id), &body).await.problem().0, 400, "{outcome}");
    }
    assert_eq!(world.state(&id).await, "UNKNOWN");
}

#[tokio::test]
async fn while_its_owner_is_alive_an_attempt_is_not_settled() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({ "leaseMs": 10_000 })).await;
    for body in [applied(None), json!({ "outcome": "not-applied", "reason": WHY })] {
        let refused = world.post(&resolve(&attempt.id), &body).await;
        assert_eq!(refused.problem(), (409, "RECORD_STATE_CONFLICT".into()));
        assert_eq!(refused.retry_after(), Some(10));
    }
    assert_eq!(world.post(&release(&attempt.id), &json!({ "reason": WHY })).await.problem().0, 409);
    assert_eq!(world.state(&attempt.id).await, "PROCESSING");
}

#[tokio::test]
async fn after_a_silent_owner_only_denial_has_to_wait() {
    let world = World::new().await;
    let spans = json!({ "leaseMs": 10_000, "workDeadlineMs": 20_000 });
    let (a, b) = (world.claimed("order-a", &spans).await, world.claimed("order-b", &spans).await);
    world.pass(Duration::from_secs(11));
    let denied = json!({ "outcome": "not-applied", "reason": WHY });
    let failed = json!({ "outcome": "failed", "reason": WHY, "response": { "status": 402 } });
    for body in [&denied, &failed] {
        let early = world.post(&resolve(&a.id), body).await;
        assert_eq!(early.problem(), (409, "RECORD_STATE_CONFLICT".into()));
        // Lease and deadline add up to 30 s, of which 11 have passed. The retry has to come later than that.
        assert_eq!(early.retry_after(), Some(20));
    }
    assert_eq!(world.post(&resolve(&b.id), &applied(None)).await.json()["state"], "SUCCEEDED");
    world.pass(Duration::from_secs(20));
    assert_eq!(world.post(&resolve(&a.id), &denied).await.json()["state"], "FAILED_NOT_REPLAYABLE");
}

#[tokio::test]
async fn a_verdict_about_one_attempt_does_not_settle_the_next() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    let shown = world.get(&format!("/v1/records/{id}")).await.json()["fence"].clone();
    let absent = json!({ "outcome": "not-applied", "reason": WHY, "fence": shown });
    // Another operator resolves it first, and the outcome of a retry is unknown again.
    assert_eq!(world.post(&resolve(&id), &absent).await.status, 200);
    assert_eq!(service.doubt().await, id);
    let late = world.post(&resolve(&id), &absent).await;
    assert_eq!(late.problem(), (409, "RECORD_STATE_CONFLICT".into()));
    assert!(late.text().contains("Another attempt has begun"), "{}", late.text());
    assert_eq!((world.state(&id).await, service.calls()), ("UNKNOWN", 2));
}

#[tokio::test]
async fn a_resolved_record_is_not_resolved_again() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let outcome = attempt.with(&json!({ "outcome": "succeeded" }));
    assert_eq!(world.post(&attempt.at("outcome"), &outcome).await.status, 200);
    let again = world.post(&resolve(&attempt.id), &json!({ "outcome": "not-applied", "reason": WHY })).await;
    assert_eq!((again.problem(), again.retry_after()), ((409, "RECORD_STATE_CONFLICT".into()), None));
    let problem: Value = serde_json::from_slice(&again.body).expect("JSON");
    assert_eq!(problem["state"], "SUCCEEDED");
    let released = world.post(&release(&attempt.id), &json!({ "reason": WHY })).await;
    assert_eq!(released.problem(), (409, "RECORD_STATE_CONFLICT".into()));
}

#[tokio::test]
async fn a_released_key_takes_another_payload_as_its_next_attempt() {
    let world = World::new().await;
    let attempt = world.claimed("order-1", &json!({})).await;
    let outcome = attempt.with(&json!({ "outcome": "not-applied" }));
    assert_eq!(world.post(&attempt.at("outcome"), &outcome).await.json()["state"], "FAILED_NOT_REPLAYABLE");
    let other = super::world::claim("order-1", &json!({ "payload": { "amount": 6 } }));
    assert_eq!(world.post("/v1/claims", &other).await.problem().0, 422);
    let released = world.post(&release(&attempt.id), &json!({ "reason": WHY })).await;
    assert_eq!(released.status, 200, "{}", released.text());
    let next = world.post("/v1/claims", &other).await.json();
    assert_eq!((&next["operationId"], &next["attempt"]), (&json!(attempt.id), &json!(2)));
}

#[tokio::test]
async fn a_dead_reservation_is_released_and_a_dead_attempt_is_not() {
    let world = World::new().await;
    let reserved = world.claimed("order-a", &json!({ "mode": "reserved", "leaseMs": 1_000 })).await;
    let begun = world.claimed("order-b", &json!({ "leaseMs": 1_000 })).await;
    let early = world.post(&release(&reserved.id), &json!({ "reason": WHY })).await;
    assert_eq!((early.problem().0, early.retry_after()), (409, Some(1)));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.post(&release(&reserved.id), &json!({ "reason": WHY })).await.status, 200);
    assert_eq!(world.post(&release(&begun.id), &json!({ "reason": WHY })).await.problem().0, 409);
}

#[tokio::test]
async fn nothing_is_resolved_without_a_record_or_a_store() {
    let world = World::new().await;
    let nobody = "30313233-3435-3637-3839-616263646566";
    assert_eq!(
        world.post(&resolve(nobody), &applied(None)).await.problem(),
        (404, "OPERATION_NOT_FOUND".into())
    );
    assert_eq!(world.post(&release(nobody), &json!({ "reason": WHY })).await.problem().0, 404);
    world.lose_store().await;
    assert_eq!(world.post(&resolve(nobody), &applied(None)).await.problem().0, 503);
}

#[tokio::test]
async fn a_header_that_is_no_pair_is_named() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    let response = json!({ "status": 200, "headers": [["a", "b"], ["a", "b", "c"]] });
    let reply = world.post(&resolve(&id), &applied(Some(response))).await;
    assert_eq!(reply.problem(), (400, "INVALID_REQUEST".to_owned()));
    let text = reply.text();
    assert!(text.contains("`response.headers[1]` is not a pair of name and value"), "{text}");
}

#[tokio::test]
async fn a_response_of_an_operator_or_a_worker_is_bounded() {
    let world = World::new().await;
    let service = Doubtful::on(&world).await;
    let id = service.doubt().await;
    for (number, (response, why)) in [
        (json!({ "status": 200, "headers": [["x", "v".repeat(1 << 17)]] }), "at most 65536"),
        (json!({ "status": 200, "headers": vec![("x", "1"); 257] }), "257 headers; at most 256"),
        (json!({ "status": 200, "body": "b".repeat((10 << 20) + 1) }), "at most 10485760"),
    ]
    .into_iter()
    .enumerate()
    {
        let refused = world.post(&resolve(&id), &applied(Some(response.clone()))).await;
        assert_eq!(refused.problem(), (400, "INVALID_REQUEST".to_owned()), "{why}");
        assert!(refused.text().contains(why), "{}", refused.text());
        // A worker's effect has happened: its outcome is stored without what is too long, and again.
        let attempt = world.claimed(&format!("a-key-of-its-own-{number}"), &json!({})).await;
        let ended = attempt.with(&json!({ "outcome": "succeeded", "response": response }));
        for _ in 0..2 {
            assert_eq!(world.post(&attempt.at("outcome"), &ended).await.status, 200, "{why}");
        }
        let record = world.record(&attempt.id).await;
        let State::Succeeded { outcome, .. } = record.state() else { panic!("{record:?}") };
        assert_eq!(*outcome, Outcome::not_retained(Status::Http(200)));
    }
    assert_eq!(world.state(&id).await, "UNKNOWN");
    let attempt = world.claimed("a-key-of-its-own", &json!({})).await;
    // A worker passes on what it got: what is not replayed is left out.
    let response = json!({ "status": 200, "headers": [["set-cookie", "s=1"]], "body": "done" });
    let ended = attempt.with(&json!({ "outcome": "succeeded", "response": response }));
    assert_eq!(world.post(&attempt.at("outcome"), &ended).await.status, 200);
}
