//! Shadow mode: everything runs, nothing is promised, and the outcome under enforcement is reported.

use super::bodies::chunks;
use super::world::{
    Bodies, Calls, Gate, KEY, Observed, Server, charged, cuttable, engine, engine_on, post, reads, request,
};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use semel::core::policy::{Class, Policy};
use semel::core::record::StateName;
use semel::core::store::Filter;
use semel::quota::{Quotas, Rate, RateKeeper, Rates};
use semel::{Engine, memory};
use semel_http::{
    Body, Code, EventKind, Failure, KeyRule, KeySource, Layer, Mode, RouteSettings, ShadowOutcome,
};
use semel_testkit::faults::{Call, Fault, Faulty, Pause, Question};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tower::{Layer as _, ServiceExt};

fn shadow() -> RouteSettings {
    RouteSettings { mode: Mode::Shadow, ..RouteSettings::default() }
}

fn layer(engine: &Engine, settings: RouteSettings) -> (Layer, Observed) {
    Observed::over(Layer::new(engine.clone(), settings).expect("valid"))
}

#[tokio::test]
async fn everything_runs_unmarked_and_a_repetition_is_reported() {
    let (layer, mut observed) = layer(&engine().await, shadow());
    let server = Server::under(layer, reads).await;
    for (call, would) in [(1, ShadowOutcome::Run), (2, ShadowOutcome::Replay), (3, ShadowOutcome::Replay)] {
        let reply = server.charge(5).await;
        assert_eq!((reply.status, reply.text()), (201, format!("charge {call}").as_str()));
        for name in ["operation-id", "idempotency-replayed", "idempotency-expires", "idempotency-stored"] {
            assert_eq!(reply.header(name), None);
        }
        assert_eq!(observed.next().await, EventKind::Shadow(would));
    }
}

#[tokio::test]
async fn a_request_to_be_refused_runs_and_is_reported() {
    let settings = RouteSettings { key: KeyRule::Required, request_bytes_max: 1_000, ..shadow() };
    let (layer, mut observed) = layer(&engine().await, settings);
    let server = Server::under(layer, reads).await;
    let event = EventKind::Shadow(ShadowOutcome::Run);
    assert_eq!((server.charge(5).await.status, observed.next().await), (201, event));
    let refused = [
        (post("/charges").json("{\"amount\":6}"), Code::Mismatch),
        (request("POST", "/charges").json("{}"), Code::Missing),
        (request("POST", "/charges").header("idempotency-key", "short").json("{}"), Code::Invalid),
        (post("/charges").header("cookie", "a=b").json("{}"), Code::CallerNotIdentified),
        (post("/charges").json("{"), Code::Unfingerprintable),
        (post("/charges").bytes(vec![0; 1_001]), Code::TooLarge),
        (post("/charges").header("accept", "text/event-stream").json("{}"), Code::Streaming),
    ];
    for (request, code) in refused {
        assert_eq!(server.send(request).await.status, 201, "{code:?}");
        assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Refuse(code)));
    }
    let long = post("/charges").body(chunks(&[600, 600])).expect("a request");
    assert_eq!(server.send(long).await.status, 201);
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Refuse(Code::TooLarge)));
    assert_eq!(server.calls.count(), 9);
}

#[tokio::test]
async fn an_uncertain_outcome_is_reported_and_leaves_no_record() {
    let engine = engine().await;
    let (layer, mut observed) = layer(&engine, shadow());
    let server = Server::under(layer, |call, request| async move {
        drop(reads(call, request).await);
        StatusCode::BAD_GATEWAY.into_response()
    })
    .await;
    for would in [ShadowOutcome::Run, ShadowOutcome::Refuse(Code::Unknown)] {
        assert_eq!(server.charge(5).await.status, 502);
        assert_eq!(observed.next().await, EventKind::Shadow(would));
    }
    let unknown = Filter { state: Some(StateName::Unknown), ..Filter::default() };
    assert!(engine.store().page(&unknown, None, 10).await.expect("it answers").items.is_empty());
    assert_eq!(server.calls.count(), 2);
}

#[tokio::test]
async fn a_process_lost_in_shadow_mode_leaves_nothing_unknown() {
    for class in [Class::External, Class::Downstream] {
        let engine = engine().await;
        let settings = RouteSettings { policy: Policy::new(class), ..shadow() };
        let (layer, mut observed) = layer(&engine, settings);
        let server = Server::under(layer, reads).await;
        assert_eq!(server.charge(5).await.status, 201);
        assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run));
        let page = engine.store().page(&Filter::default(), None, 10).await.expect("it answers");
        let record = page.items[0].record().expect("a record");
        // Only in this class is a lost attempt simply repeated.
        assert_eq!(record.policy().class, Class::Local, "on a route of class {class}");
    }
}

#[tokio::test]
async fn after_no_effect_the_next_request_would_run() {
    let policy = Policy::new(Class::External).with(|policy| policy.attempts_max = Some(2)).expect("valid");
    let (layer, mut observed) = layer(&engine().await, RouteSettings { policy, ..shadow() });
    let server = Server::under(layer, |call, request| async move {
        drop(reads(call, request).await);
        StatusCode::TOO_MANY_REQUESTS.into_response()
    })
    .await;
    for would in [ShadowOutcome::Run, ShadowOutcome::Run, ShadowOutcome::Refuse(Code::AttemptsExhausted)] {
        assert_eq!(server.charge(5).await.status, 429);
        assert_eq!(observed.next().await, EventKind::Shadow(would));
    }
}

#[tokio::test]
async fn a_duplicate_of_a_running_request_runs_in_parallel() {
    let gate = Gate::new();
    let within = gate.clone();
    let (layer, mut observed) =
        layer(&engine().await, RouteSettings { wait: Some(Duration::ZERO), ..shadow() });
    let server = Server::under(layer, move |call, request| {
        let gate = within.clone();
        async move {
            let response = reads(call, request).await;
            gate.pass().await;
            response
        }
    })
    .await;
    let server = Arc::new(server);
    let send = || {
        let server = Arc::clone(&server);
        tokio::spawn(async move { server.charge(5).await.status })
    };
    let first = send();
    gate.started().await;
    let second = send();
    gate.started().await;
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Refuse(Code::InProgress)));
    gate.open();
    gate.open();
    assert_eq!((first.await.expect("no panic"), second.await.expect("no panic")), (201, 201));
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run));
}

#[tokio::test]
async fn a_failing_store_affects_no_request() {
    let (store, is_cut) = cuttable();
    let engine = engine_on(store).await;
    let (layer, mut observed) = layer(&engine, shadow());
    let server = Server::under(layer, reads).await;
    is_cut.store(true, Ordering::SeqCst);
    assert_eq!(server.charge(5).await.status, 201);
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Refuse(Code::StoreUnavailable)));

    let plan = |call: &Call| match call.question {
        Question::Insert => Fault::DelayBefore(Pause::until(std::future::pending())),
        _ => Fault::Pass,
    };
    let silent = Faulty::new(Arc::new(memory::Store::new()), plan);
    // Built on a store that answers; only claims hang.
    let engine = engine_on(Arc::new(silent)).await;
    let layer = Layer::new(engine, shadow()).expect("valid");
    let server = Server::under(layer, reads).await;
    for call in 1..=20 {
        assert_eq!(server.charge(5).await.text(), format!("charge {call}"));
    }
}

#[tokio::test]
async fn enforcement_replays_nothing_from_shadow_mode() {
    let engine = engine().await;
    let calls = Calls::default();
    let (in_shadow, mut observed) = layer(&engine, shadow());
    let enforced = Layer::new(engine.clone(), RouteSettings::default()).expect("valid").publishing("");
    let in_shadow = Server::of(super::world::app(in_shadow, &calls, reads), calls.clone()).await;
    let enforced = Server::of(super::world::app(enforced, &calls, reads), calls.clone()).await;
    in_shadow.charge(5).await;
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run));
    let first = enforced.charge(5).await;
    assert_eq!((first.text(), first.is_replay()), ("charge 2", false));
    let again = enforced.charge(5).await;
    assert_eq!((again.text(), again.is_replay()), ("charge 2", true));
    assert_eq!(in_shadow.charge(5).await.text(), "charge 3");
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Replay));
    assert_eq!(in_shadow.charge(6).await.text(), "charge 4");
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Refuse(Code::Mismatch)));
    assert_eq!(enforced.charge(5).await.text(), "charge 2");

    // Its caller cannot look it up as an operation either.
    let all = engine.store().page(&Filter::default(), None, 10).await.expect("it answers");
    let records = all.items.iter().filter_map(semel::core::store::Item::record);
    for record in records.filter(|record| record.operation().starts_with("(shadow)")) {
        let path = format!("/operations/{}", record.operation_id());
        let get = request("GET", &path).header("idempotency-key", KEY).empty();
        enforced.send(get).await.is_problem(404, "OPERATION_NOT_FOUND", false);
    }
    assert_eq!(all.items.len(), 2);
}

#[tokio::test]
async fn likely_repetitions_without_a_key_are_reported() {
    let (layer, mut observed) = layer(&engine().await, shadow());
    let server = Server::under(layer, reads).await;
    let send = |body| server.send(request("POST", "/charges").json(body));
    for (body, would) in [
        ("{\"n\":1}", ShadowOutcome::Run),
        ("{\"n\":1.0}", ShadowOutcome::RunAgain),
        ("{\"n\":2}", ShadowOutcome::Run),
        ("{", ShadowOutcome::Run),
    ] {
        assert_eq!(send(body).await.status, 201);
        assert_eq!(observed.next().await, EventKind::Shadow(would), "{body}");
    }
}

/// What is observed of each request: its route, whether it had a key, whether it is a likely duplicate.
fn seeing(layer: Layer) -> (Layer, tokio::sync::mpsc::UnboundedReceiver<(String, bool, bool, EventKind)>) {
    let (report, reports) = tokio::sync::mpsc::unbounded_channel();
    let layer = layer.observer(move |event: &semel_http::Event<'_>| {
        let seen = event.seen.expect("in shadow mode");
        let route = format!("{} {}", seen.method, seen.path);
        drop(report.send((route, seen.has_key, seen.is_repeat, event.what)));
    });
    (layer, reports)
}

#[tokio::test]
async fn a_likely_repeat_is_reported_even_if_its_key_is_missing() {
    let pointer = KeySource::Pointer(semel::core::fingerprint::Pointer::parse("/id").expect("a pointer"));
    for key_source in [RouteSettings::default().key_source, pointer] {
        let settings = RouteSettings { key: KeyRule::Required, key_source, ..shadow() };
        let (layer, mut reports) = seeing(Layer::new(engine().await, settings).expect("valid"));
        let server = Server::under(layer, reads).await;
        for is_repeat in [false, true] {
            let ask = request("POST", "/accounts/4711/charges").json("{\"n\":1}");
            assert_eq!(server.send(ask).await.status, 201);
            let refused = EventKind::Shadow(ShadowOutcome::Refuse(Code::Missing));
            let expected = ("POST /accounts/{id}/charges".to_owned(), false, is_repeat, refused);
            assert_eq!(reports.recv().await, Some(expected));
        }
    }
}

#[tokio::test]
async fn requests_are_reported_by_route_and_key() {
    let (layer, mut reports) = seeing(Layer::new(engine().await, shadow()).expect("valid"));
    let server = Server::under(layer, reads).await;
    let asks = [
        (post("/v1/x/7").json("{}"), true),
        (request("POST", "/v1/x/8").json("{}"), false),
        (request("POST", "/v1/x/9").header("idempotency-key", "short").json("{}"), true),
        (post("/v1/x/7").header("accept", "text/event-stream").json("{}"), true),
    ];
    for (ask, has_key) in asks {
        assert_eq!(server.send(ask).await.status, 201);
        let (route, had_key, is_repeat, _) = reports.recv().await.expect("a report");
        assert_eq!((route.as_str(), had_key, is_repeat), ("POST /v1/x/{id}", has_key, false));
    }
}

#[tokio::test]
async fn a_key_in_the_body_is_found_while_streaming() {
    let source = KeySource::Pointer(semel::core::fingerprint::Pointer::parse("/id").expect("a pointer"));
    let (layer, mut observed) = layer(&engine().await, RouteSettings { key_source: source, ..shadow() });
    let server = Server::under(layer, reads).await;
    let events = [
        ("{\"id\":1}", ShadowOutcome::Run),
        ("{\"id\":1}", ShadowOutcome::Replay),
        ("{\"id\":null}", ShadowOutcome::Refuse(Code::Invalid)),
        ("{}", ShadowOutcome::Run),
        ("{}", ShadowOutcome::RunAgain),
    ];
    for (body, would) in events {
        assert_eq!(server.send(request("POST", "/hook").json(body)).await.status, 201);
        assert_eq!(observed.next().await, EventKind::Shadow(would), "{body}");
    }
}

#[tokio::test]
async fn a_request_whose_body_is_not_read_stays_unjudged() {
    let (layer, mut observed) = layer(&engine().await, shadow());
    let server = Server::under(layer, charged).await;
    assert_eq!(server.charge(5).await.status, 201);
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::NotJudged));
    assert_eq!(server.send(post("/charges").empty()).await.status, 201);
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run), "there is nothing to read");
}

#[tokio::test]
async fn shadow_mode_uses_up_no_quota() {
    let rate = Rate { count: NonZeroU32::new(1).expect("not zero"), per: Duration::from_hours(1) };
    let quotas = Quotas { new_per_caller: Some(rate), ..Quotas::default() };
    let engine =
        Engine::builder(Arc::new(memory::Store::new())).quotas(quotas).build().await.expect("it answers");
    let (in_shadow, mut observed) = layer(&engine, shadow());
    let in_shadow = Server::under(in_shadow, reads).await;
    let enforced = Server::under(Layer::new(engine, RouteSettings::default()).expect("valid"), reads).await;
    in_shadow.charge(5).await;
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run));
    in_shadow.send(post("/refunds").json("{}")).await;
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Refuse(Code::Quota)));
    assert_eq!(enforced.charge(5).await.status, 201);
}

fn once_an_hour() -> Rate {
    Rate { count: NonZeroU32::MIN, per: Duration::from_hours(1) }
}

#[tokio::test]
async fn a_flood_in_shadow_refuses_no_enforced_request() {
    let (new_in_total, new_per_address) = (Some(once_an_hour()), Some(once_an_hour()));
    let quotas = Quotas { new_in_total, new_per_address, ..Quotas::default() };
    let engine =
        Engine::builder(Arc::new(memory::Store::new())).quotas(quotas).build().await.expect("it answers");
    let from = |layer: Layer| layer.address(|_| Some([192, 0, 2, 7].into()));
    let (in_shadow, mut observed) = layer(&engine, shadow());
    let in_shadow = Server::under(from(in_shadow), reads).await;
    let enforced = Layer::new(engine, RouteSettings::default()).expect("valid");
    let enforced = Server::under(from(enforced), reads).await;
    for amount in 0..3 {
        in_shadow.send(request("POST", "/charges").json(&format!("{{\"amount\":{amount}}}"))).await;
        assert_eq!(
            observed.next().await,
            EventKind::Shadow(ShadowOutcome::Run),
            "requests that need no key create none"
        );
    }
    for (path, would) in [("/a", ShadowOutcome::Run), ("/b", ShadowOutcome::Refuse(Code::Quota))] {
        in_shadow.send(post(path).json("{}")).await;
        assert_eq!(observed.next().await, EventKind::Shadow(would), "{path}");
    }
    assert_eq!(enforced.charge(5).await.status, 201);
    assert_eq!(enforced.send(post("/refunds").json("{}")).await.status, 429, "its own rate applies");
}

#[tokio::test]
async fn refusals_by_address_are_reported() {
    let rates = Rates { new_per_address: Some(once_an_hour()), ..Rates::default() };
    let rates = Some(RateKeeper::new(rates).expect("valid"));
    let (layer, mut observed) = layer(&engine().await, RouteSettings { rates, ..shadow() });
    let server = Server::under(layer.address(|_| Some([192, 0, 2, 7].into())), reads).await;
    for (path, would) in [
        ("/a", ShadowOutcome::Run),
        ("/b", ShadowOutcome::Refuse(Code::Quota)),
        ("/a", ShadowOutcome::Replay),
    ] {
        assert_eq!(server.send(post(path).json("{}")).await.status, 201);
        assert_eq!(observed.next().await, EventKind::Shadow(would), "{path}");
    }
}

/// Sends a request to a service without a socket.
async fn sent<S, R>(layer: &Layer, inner: S, kind: &str) -> Result<Response<Body>, S::Error>
where
    S: tower::Service<Request<Body>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<semel_http::BoxError> + 'static,
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<semel_http::BoxError>,
{
    let request = Request::post("/x").header("idempotency-key", KEY).header("content-type", kind);
    layer.layer(inner).oneshot(request.body(Full::new(Bytes::new())).expect("a request")).await
}

#[tokio::test]
async fn grpc_is_judged_by_its_trailers() {
    for (status, second) in [
        ("0", ShadowOutcome::Replay),
        ("13", ShadowOutcome::Refuse(Code::Unknown)),
        ("16", ShadowOutcome::Run),
    ] {
        let (layer, mut observed) = layer(&engine().await, shadow());
        let inner = tower::service_fn(move |_: Request<Body>| {
            let trailers = [("grpc-status", status)]
                .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
            let frames = [Frame::data(Bytes::from("x")), Frame::trailers(trailers.into_iter().collect())];
            let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, std::io::Error>)));
            let response = Response::builder().header("content-type", "application/grpc").body(body);
            std::future::ready(Ok::<_, Failure>(response.expect("a response")))
        });
        for would in [ShadowOutcome::Run, second] {
            let response = sent(&layer, inner, "application/grpc").await.expect("a response");
            let body = response.into_body().collect().await.expect("a complete body");
            assert_eq!(body.trailers().expect("trailers")["grpc-status"], status);
            assert_eq!(observed.next().await, EventKind::Shadow(would), "{status}");
        }
    }
}

#[tokio::test]
async fn a_failure_passes_through_and_counts_by_its_report() {
    for (failure, second) in
        [(Failure::Unreachable, ShadowOutcome::Run), (Failure::Broken, ShadowOutcome::Refuse(Code::Unknown))]
    {
        let (layer, mut observed) = layer(&engine().await, shadow());
        let inner =
            tower::service_fn(move |_: Request<Body>| std::future::ready(Err::<Response<Body>, _>(failure)));
        for would in [ShadowOutcome::Run, second] {
            assert_eq!(sent(&layer, inner, "text/plain").await.expect_err("it fails"), failure);
            assert_eq!(observed.next().await, EventKind::Shadow(would));
        }
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_would_have_found_its_outcome() {
    let (layer, mut observed) = layer(&engine().await, shadow());
    let gate = Gate::new();
    let within = gate.clone();
    let inner = tower::service_fn(move |_: Request<Body>| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            Ok::<_, Failure>(Response::new(Body::from(Bytes::new())))
        }
    });
    tokio::select! {
        _ = sent(&layer, inner.clone(), "text/plain") => panic!("it waits"),
        () = gate.started() => {}
    }
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Run));
    gate.open();
    sent(&layer, inner, "text/plain").await.expect("a response");
    assert_eq!(observed.next().await, EventKind::Shadow(ShadowOutcome::Replay));
}
