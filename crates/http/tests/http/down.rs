//! A store that cannot be reached, if the settings allow requests without it.

use super::world::{self, Bodies, Calls, Observed, Server, app, cuttable, engine_on, post, request};
use axum::extract::Request;
use axum::response::IntoResponse;
use semel::{Call, Engine, Event, Settings, memory};
use semel_http::{Code, EventKind, Layer, RouteSettings, StoreDown};
use semel_testkit::faults::{self, Fault, Faulty, Gate, Question};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open() -> RouteSettings {
    RouteSettings { store_down: StoreDown::PassUnprotected, ..RouteSettings::default() }
}

#[tokio::test]
async fn requests_pass_unprotected_marked_and_counted() {
    let (store, is_cut) = cuttable();
    let layer = Layer::new(engine_on(store).await, open()).expect("valid");
    let (layer, mut observed) = Observed::over(layer);
    let server = Server::under(layer, |call, request: Request| async move {
        let (parts, body) = request.into_parts();
        let header = |name| parts.headers.contains_key(name);
        let text = format!("{call} {} {}", header("idempotency-key"), header("idempotency-attempt"));
        let body = axum::body::to_bytes(body, 100).await.expect("a body");
        ([("idempotency-expires", "forged")], format!("{text} {}", body.len())).into_response()
    })
    .await;
    is_cut.store(true, Ordering::SeqCst);
    for call in 1..=2 {
        let reply = server.send(post("/charges").json("{}")).await;
        assert_eq!((reply.status, reply.text()), (200, format!("{call} true false 2").as_str()));
        assert_eq!(reply.header("idempotency-stored"), Some("false"));
        assert!(reply.header("operation-id").is_none() && reply.header("idempotency-expires").is_none());
        assert_eq!(observed.next().await, EventKind::FailedOpen);
    }
    is_cut.store(false, Ordering::SeqCst);
    assert_eq!(server.send(post("/charges").json("{}")).await.text(), "3 true true 2");
    assert!(matches!(observed.next().await, EventKind::Ran(Some(_))));
    is_cut.store(true, Ordering::SeqCst);
    let replay = server.send(post("/charges").json("{}")).await;
    assert_eq!(
        (replay.text(), replay.is_replay()),
        ("3 true true 2", true),
        "outcomes cached in this process need no store"
    );
}

#[tokio::test]
async fn requests_refused_for_other_reasons_stay_refused() {
    let (store, is_cut) = cuttable();
    let layer = Layer::new(engine_on(store).await, open()).expect("valid");
    let server = Server::under(layer, world::charged).await;
    is_cut.store(true, Ordering::SeqCst);
    server.send(post("/charges").json("{")).await.is_problem(400, "UNFINGERPRINTABLE_REQUEST", false);
    let weak = request("POST", "/charges").header("idempotency-key", "short").json("{}");
    server.send(weak).await.is_problem(400, "INVALID_IDEMPOTENCY_KEY", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn a_known_running_duplicate_is_not_run_again_without_the_store() {
    let (store, is_cut) = cuttable();
    let gate = world::Gate::new();
    let calls = Calls::default();
    let within = gate.clone();
    let answer = move |call, request| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            world::charged(call, request).await
        }
    };
    let here = Layer::new(engine_on(Arc::clone(&store)).await, open()).expect("valid");
    // Another node: the store fails as soon as that node knows of the duplicate.
    let (cut, is_armed) = (Arc::clone(&is_cut), Arc::new(AtomicBool::new(false)));
    let armed = Arc::clone(&is_armed);
    let observer = Cutting { cut, armed };
    let there = Engine::builder(store).observer(observer).build().await.expect("it answers");
    let (there, mut observed) = Observed::over(Layer::new(there, open()).expect("valid"));
    let here = Arc::new(Server::of(app(here, &calls, answer.clone()), calls.clone()).await);
    let there = Server::of(app(there, &calls, answer), calls.clone()).await;
    let first = tokio::spawn({
        let here = Arc::clone(&here);
        async move { here.charge(5).await }
    });
    gate.started().await;
    is_armed.store(true, Ordering::SeqCst);
    there.charge(5).await.is_problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE", true);
    let refused = EventKind::Refused { code: Code::StoreUnavailable, caller: None };
    assert_eq!(observed.next().await, refused);
    is_cut.store(false, Ordering::SeqCst);
    gate.open();
    assert_eq!(first.await.expect("no panic").text(), "charge 1");
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn a_request_with_an_ambiguous_claim_is_not_forwarded() {
    for is_read_lost in [false, true] {
        let is_cut = Arc::new(AtomicBool::new(false));
        let cut = Arc::clone(&is_cut);
        // The claim arrives and its answer is lost; then the store cannot be reached, or hangs.
        let plan = move |call: &faults::Call| match call.question {
            _ if !cut.load(Ordering::SeqCst) => Fault::Pass,
            Question::Insert => Fault::FailAfter,
            _ if is_read_lost => Fault::DelayBefore(Gate::new().pause()),
            _ => Fault::FailBefore,
        };
        let store = Arc::new(Faulty::new(Arc::new(memory::Store::new()), plan));
        let settings = Settings { store_timeout: std::time::Duration::from_secs(1), ..Settings::default() };
        let engine = Engine::builder(store).settings(settings);
        let layer = Layer::new(engine.build().await.expect("it answers"), open()).expect("valid");
        let server = Server::under(layer, world::charged).await;
        is_cut.store(true, Ordering::SeqCst);
        server.charge(5).await.is_problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE", true);
        assert_eq!(server.calls.count(), 0);
    }
}

/// Disconnects the store after a claim was answered.
struct Cutting {
    cut: Arc<AtomicBool>,
    armed: Arc<AtomicBool>,
}

impl semel::Observer for Cutting {
    fn observe(&self, event: &Event<'_>) {
        if let Event::Asked { call: Call::Insert, .. } = event
            && self.armed.swap(false, Ordering::SeqCst)
        {
            self.cut.store(true, Ordering::SeqCst);
        }
    }
}
