//! What observers learn about each request.

use super::world::{Bodies, Observed, Server, charged, engine, post, request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use semel::core::key::{Rules, Treatment, Weakness};
use semel::core::record::StateName;
use semel_http::{Code, EventKind, Layer, RouteSettings, Routes};

#[tokio::test]
async fn every_request_is_observed_once_under_a_bounded_label() {
    let named = RouteSettings { name: Some("charge".into()), ..RouteSettings::default() };
    let routes = Routes::new(RouteSettings::default()).and_then(|routes| routes.with("/charges", named));
    let routes =
        routes.and_then(|routes| routes.with("/accounts/{id}", RouteSettings::default())).expect("valid");
    let layer = Layer::routed(engine().await, routes).expect("valid");
    let (layer, mut observed) = Observed::over(layer.publishing(""));
    let server = Server::under(layer, charged).await;
    let ran = EventKind::Ran(Some(StateName::Succeeded));
    let cases = [
        (post("/charges").json("{}"), "charge", ran),
        (post("/charges").json("{}"), "charge", EventKind::Replayed),
        (post("/accounts/7").json("{}"), "/accounts/{id}", ran),
        (post("/accounts/8").json("{}"), "/accounts/{id}", ran),
        (post("/anything/else").json("{}"), "other", ran),
        (request("POST", "/charges").json("{}"), "charge", EventKind::Unprotected),
        (post("/charges").header("prefer", "respond-async").json("{}"), "charge", EventKind::Replayed),
        (
            post("/accounts/9").header("prefer", "respond-async").json("{}"),
            "/accounts/{id}",
            EventKind::Accepted,
        ),
        (
            post("/charges").json("{"),
            "charge",
            EventKind::Refused { code: Code::Unfingerprintable, caller: None },
        ),
    ];
    for (request, label, what) in cases {
        server.send(request).await;
        assert_eq!(observed.next_of().await, (label.to_owned(), what));
    }
    // Requests without settings are not reported.
    server.send(request("GET", "/charges").empty()).await;
    server.send(request("POST", "/charges").json("{}")).await;
    assert_eq!(observed.next().await, EventKind::Unprotected);
}

#[tokio::test]
async fn a_mismatch_is_observed_with_a_caller_hash() {
    let (layer, mut observed) =
        Observed::over(Layer::new(engine().await, RouteSettings::default()).expect("valid"));
    let server = Server::under(layer, charged).await;
    let mut hashes = Vec::new();
    for caller in ["alice", "bob", "alice"] {
        for body in ["{\"n\":1}", "{\"n\":2}"] {
            server
                .send(post("/charges").header("authorization", format!("Bearer {caller}")).json(body))
                .await;
            if let EventKind::Refused { code: Code::Mismatch, caller: Some(hash) } = observed.next().await {
                hashes.push(hash);
            }
        }
    }
    assert_eq!(hashes.len(), 3);
    assert!(hashes[0] == hashes[2] && hashes[0] != hashes[1]);
}

#[tokio::test]
async fn a_success_without_effect_is_accepted_and_reported() {
    let (layer, mut observed) =
        Observed::over(Layer::new(engine().await, RouteSettings::default()).expect("valid"));
    let server = Server::under(layer, |_, _| async {
        (StatusCode::OK, [("idempotency-outcome", "not-applied")], "x").into_response()
    })
    .await;
    for _ in 0..2 {
        assert_eq!(server.charge(5).await.status, 200);
        assert_eq!(observed.next().await, EventKind::OddWord);
        assert_eq!(observed.next().await, EventKind::Ran(Some(StateName::FailedNotReplayable)));
    }
    assert_eq!(server.calls.count(), 2);
}

#[tokio::test]
async fn an_accepted_weak_key_is_reported() {
    let rules = Rules::default().with_weak(Treatment::Warn);
    let (layer, mut observed) = Observed::over(
        Layer::new(engine().await, RouteSettings { key_rules: rules, ..RouteSettings::default() })
            .expect("valid"),
    );
    let server = Server::under(layer, charged).await;
    let weak = request("POST", "/charges").header("idempotency-key", "aaaaaaaaaaaaaaaaaaaa").json("{}");
    assert_eq!(server.send(weak).await.status, 201);
    assert!(matches!(observed.next().await, EventKind::WeakKey(Weakness::Repeated)));
    assert!(matches!(observed.next().await, EventKind::Ran(_)));
}

#[tokio::test]
async fn a_handler_runs_in_the_span_of_its_request() {
    use tower::{Layer as _, ServiceExt};
    use tracing::Instrument;
    let _guard =
        tracing::subscriber::set_default(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let inner = tower::service_fn(|_: http::Request<semel_http::Body>| async {
        let name = tracing::Span::current().metadata().map_or("none", tracing::Metadata::name);
        Ok::<_, std::convert::Infallible>(http::Response::new(semel_http::Body::from(bytes::Bytes::from(
            name,
        ))))
    });
    let sent =
        layer.layer(inner).oneshot(post("/charges").json("{}")).instrument(tracing::info_span!("request"));
    let body = sent.await.expect("a response").into_body();
    assert_eq!(http_body_util::BodyExt::collect(body).await.expect("a body").to_bytes(), "request");
}
