//! Effects of a route's settings and an engine's settings, over a socket, on a durable store.

use super::world::{Bodies, KEY, Reply, Scratch, Server, charged, engine_on, post, request};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use semel::core::classify::{Meaning, Rules};
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class, Policy};
use semel::quota::{Quotas, Rate};
use semel::{Engine, Settings};
use semel_http::{Layer, RouteSettings};
use semel_test_support::wait;
use semel_testkit::faults::{Call, Fault, Faulty};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OTHER_KEY: &str = "another-key-than-before-7";

#[tokio::test]
async fn a_caller_with_too_many_keys_learns_when_to_retry() {
    let scratch = Scratch::new("quota");
    let rate = Rate { count: NonZeroU32::new(1).expect("not zero"), per: Duration::from_hours(1) };
    let quotas = Quotas { new_per_caller: Some(rate), ..Quotas::default() };
    let engine = Engine::builder(scratch.store()).quotas(quotas).build().await.expect("it answers");
    let layer = Layer::new(engine, RouteSettings::default()).expect("valid").publishing("");
    let server = Server::under(layer, charged).await;
    assert_eq!(server.charge(5).await.status, 201);
    let refused =
        server.send(request("POST", "/charges").header("idempotency-key", OTHER_KEY).json("{}")).await;
    refused.is_problem(429, "IDEMPOTENCY_KEY_QUOTA_EXCEEDED", true);
    assert!(!refused.text().contains(OTHER_KEY));
    let seconds: u64 = refused.header("retry-after").expect("a time").parse().expect("whole seconds");
    assert!(seconds > 0);
    assert!(server.charge(5).await.is_replay(), "a known key is not new");
    let bob =
        request("POST", "/charges").header("idempotency-key", KEY).header("authorization", "Bearer bob");
    assert_eq!(server.send(bob.json("{}")).await.status, 201, "nor is another caller's");
    assert_eq!(server.calls.count(), 2);
}

#[tokio::test]
async fn a_store_that_does_not_answer_lets_nothing_run() {
    let scratch = Scratch::new("unavailable");
    let is_cut = Arc::new(AtomicBool::new(false));
    let decides = Arc::clone(&is_cut);
    let plan = move |_: &Call| if decides.load(Ordering::SeqCst) { Fault::FailBefore } else { Fault::Pass };
    let engine = engine_on(Arc::new(Faulty::new(scratch.store(), plan))).await;
    let server = Server::under(Layer::new(engine, RouteSettings::default()).expect("valid"), charged).await;
    is_cut.store(true, Ordering::SeqCst);
    let refused = server.charge(5).await;
    refused.is_problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE", true);
    assert_eq!((refused.header("retry-after"), server.calls.count()), (Some("1"), 0));
    is_cut.store(false, Ordering::SeqCst);
    assert_eq!(server.charge(5).await.text(), "charge 1");
}

/// Polls until `is_it`.
async fn until(server: &Server, is_it: impl Fn(&Reply) -> bool) -> Reply {
    wait::until(async || Some(server.charge(5).await).filter(&is_it)).await
}

#[tokio::test]
async fn an_expired_outcome_reruns_if_configured() {
    let scratch = Scratch::new("as-new");
    let policy = Policy::new(Class::External)
        .with(|policy| {
            policy.lease = Duration::from_millis(500);
            policy.ttl = Duration::from_secs(1);
            policy.after_expiry = AfterExpiry::RunAsNew;
        })
        .expect("valid");
    let settings = RouteSettings { policy, ..RouteSettings::default() };
    // Without waiting two minutes after the start.
    let mut engine_settings = Settings::default();
    engine_settings.clock.settle = Duration::ZERO;
    let engine =
        Engine::builder(scratch.store()).settings(engine_settings).build().await.expect("the store answers");
    let layer = Layer::new(engine, settings).expect("valid");
    let server = Server::under(layer, charged).await;
    let first = server.charge(5).await;
    assert_eq!(first.text(), "charge 1");
    let again = until(&server, |reply| !reply.is_replay()).await;
    assert_eq!((again.status, again.text()), (201, "charge 2"));
    assert_eq!(again.header("operation-id"), first.header("operation-id"), "a key's operation has one name");
}

#[tokio::test]
async fn a_refusal_is_replayed_if_rerun_is_off() {
    let scratch = Scratch::new("rerun");
    let settings =
        RouteSettings { rules: Rules { rerun: false, ..Rules::default() }, ..RouteSettings::default() };
    let layer = Layer::new(engine_on(scratch.store()).await, settings).expect("valid");
    let server = Server::under(layer, |call, _| async move {
        (StatusCode::TOO_MANY_REQUESTS, format!("no {call}")).into_response()
    })
    .await;
    let (first, retry) = (server.charge(5).await, server.charge(5).await);
    assert_eq!((first.status, first.text(), first.is_replay()), (429, "no 1", false));
    assert_eq!((retry.status, retry.text(), retry.is_replay()), (429, "no 1", true));
    assert!(first.header("idempotency-expires").is_some());
}

#[tokio::test]
async fn what_a_status_means_can_be_chosen() {
    let scratch = Scratch::new("overrides");
    let rules = Rules {
        not_applied: Vec::new(),
        overrides: vec![(Status::Http(500), Meaning::NotApplied)],
        ..Rules::default()
    };
    let layer =
        Layer::new(engine_on(scratch.store()).await, RouteSettings { rules, ..RouteSettings::default() });
    let server = Server::under(layer.expect("valid"), |_, request: Request| async move {
        let status: u16 = request.uri().path()[1..].parse().expect("a status");
        (StatusCode::from_u16(status).expect("a status"), [("retry-after", "1")]).into_response()
    })
    .await;
    for (path, is_again) in [("/500", true), ("/429", false), ("/401", false)] {
        let before = server.calls.count();
        server.send(post(path).json("{}")).await;
        let retry = server.send(post(path).json("{}")).await;
        assert_eq!(server.calls.count() - before, 1 + u32::from(is_again), "{path}");
        assert_eq!(retry.is_replay(), !is_again, "{path}");
    }
    server.send(post("/503").json("{}")).await;
    server.send(post("/503").json("{}")).await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
}
