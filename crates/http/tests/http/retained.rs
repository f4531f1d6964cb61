//! What is stored of a response, and the authorization before a replay.

use super::world::{Bodies, Observed, Server, engine, post, request};
use axum::Extension;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use bytes::Bytes;
use http::Response;
use http::request::Parts;
use semel::core::id::OperationId;
use semel::core::store::{Filter, Item};
use semel::{Case, Engine, Finding, memory};
use semel_http::{
    Authorize, Body, Code, EventKind, Handle, Layer, Reconciler, Retain, RouteSettings, Routes, StoredSummary,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// A server that names the resources it creates, with these settings.
async fn naming(layer: Layer) -> Server {
    Server::under(layer, |call, request: Request| async move {
        Handle::of(request.extensions()).expect("it is protected").name_resource(format!("charge {call}"));
        let headers = [("location", "/charges/7"), ("etag", "\"1\""), ("x-own", "secret")];
        (StatusCode::CREATED, headers, "a personal body").into_response()
    })
    .await
}

fn rebuilding(summary: &StoredSummary, retry: &Parts) -> Option<Response<Body>> {
    if retry.headers.contains_key("x-gone") {
        return None;
    }
    let text = |value: &Option<http::HeaderValue>| {
        value.as_ref().map(|value| value.to_str().expect("ASCII").to_owned())
    };
    let body = format!(
        "{} {:?} {:?} {:?} {}",
        summary.status.as_u16(),
        text(&summary.location),
        text(&summary.etag),
        summary.resource,
        retry.headers["x-retry"].to_str().expect("ASCII"),
    );
    let mut response = Response::new(Body::from(Bytes::from(body)));
    response.headers_mut().insert("idempotency-stored", http::HeaderValue::from_static("forged"));
    Some(response)
}

#[tokio::test]
async fn a_minimal_outcome_is_rebuilt_and_marked() {
    let retain =
        Retain::rebuilt_by(
            |summary: StoredSummary, retry: Parts| async move { rebuilding(&summary, &retry) },
        );
    let engine = engine().await;
    let layer =
        Layer::new(engine.clone(), RouteSettings { retain, ..RouteSettings::default() }).expect("valid");
    let (layer, mut observed) = Observed::over(layer.publishing(""));
    let server = naming(layer).await;
    let first = server.send(post("/charges").json("{}")).await;
    assert_eq!((first.status, first.text(), first.header("x-own")), (201, "a personal body", Some("secret")));
    assert!(matches!(observed.next().await, EventKind::Ran(Some(_))));

    let again = server.send(post("/charges").header("x-retry", "once more").json("{}")).await;
    let text = "201 Some(\"/charges/7\") Some(\"\\\"1\\\"\") Some(\"charge 1\") once more";
    assert_eq!((again.status, again.text()), (201, text));
    assert_eq!(again.header("idempotency-replayed"), Some("rebuilt"));
    assert_eq!(again.header("location"), Some("/charges/7"));
    assert_eq!(again.header("operation-id"), first.header("operation-id"));
    assert_eq!(again.header("idempotency-expires"), first.header("idempotency-expires"));
    assert_eq!(again.header("idempotency-stored"), None);
    assert_eq!(observed.next().await, EventKind::Rebuilt);

    let gone = server.send(post("/charges").header("x-gone", "1").json("{}")).await;
    gone.is_problem(409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED", false);
    assert_eq!(observed.next().await, EventKind::Refused { code: Code::NotRetained, caller: None });
    assert_eq!(server.calls.count(), 1);

    let all = engine.store().page(&Filter::default(), None, 10).await.expect("it answers");
    let stored = format!(
        "{:?}",
        all.items.iter().filter_map(Item::record).map(semel::core::record::Record::state).collect::<Vec<_>>()
    );
    assert!(
        stored.contains("location") && !stored.contains("x-own") && stored.contains("NotRetained"),
        "{stored}"
    );
    let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
    let shown = server.send(request("GET", &path).header("idempotency-key", super::world::KEY).empty()).await;
    let shown: serde_json::Value = serde_json::from_slice(&shown.body).expect("JSON");
    let headers = serde_json::json!([["location", "/charges/7"], ["etag", "\"1\""]]);
    assert_eq!((&shown["result"]["headers"], shown["result"].get("body")), (&headers, None));
}

#[tokio::test]
async fn a_minimal_outcome_without_a_rebuilder_is_not_retained() {
    let settings = RouteSettings { retain: Retain::Minimal(None), ..RouteSettings::default() };
    let server = naming(Layer::new(engine().await, settings).expect("valid")).await;
    assert_eq!(server.charge(5).await.status, 201);
    server.charge(5).await.is_problem(409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED", false);
    assert_eq!(server.calls.count(), 1);
}

/// A server whose first answer is uncertain, and whose reconciler finds a response.
async fn doubted(settings: RouteSettings) -> (Server, Observed) {
    let within = settings.clone();
    let asked = move |_: Case| {
        let found = Response::builder().status(200).header("x-own", "1").header("date", "today");
        let (head, ()) = found.header("location", "/charges/7").body(()).expect("a response").into_parts();
        let outcome = within.found(&head, Some(Bytes::from("the found response")));
        async move { Finding::Applied(Some(outcome)) }
    };
    let routes =
        Routes::new(RouteSettings { reconciler: Some(Reconciler::by(asked)), ..settings }).expect("valid");
    let directory = routes.clone();
    let builder = Engine::builder(Arc::new(memory::Store::new()));
    let engine = builder.reconcilers(move |operation| directory.reconciler_of(operation)).build();
    let layer = Layer::routed(engine.await.expect("it answers"), routes).expect("valid").publishing("");
    let (layer, observed) = Observed::over(layer);
    let server =
        Server::under(layer, |_, _| async { StatusCode::INTERNAL_SERVER_ERROR.into_response() }).await;
    (server, observed)
}

/// Sends charges until the doubt is settled.
async fn settled(server: &Server) -> super::world::Reply {
    let settling = async {
        loop {
            let reply = server.charge(5).await;
            let is_problem = reply.header("content-type") == Some("application/problem+json");
            if !is_problem || reply.problem()["code"] != "IDEMPOTENCY_OUTCOME_UNKNOWN" {
                return reply;
            }
            assert_eq!(reply.problem()["retryable"], true, "a doubt with a reconciler");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), settling).await.expect("it is settled")
}

#[tokio::test]
async fn a_response_found_by_a_probe_is_replayed_as_rebuilt() {
    let (server, mut observed) = doubted(RouteSettings::default()).await;
    let first = server.charge(5).await;
    assert_eq!(first.status, 500);
    let found = settled(&server).await;
    assert_eq!((found.status, found.text()), (200, "the found response"));
    assert_eq!(found.header("idempotency-replayed"), Some("rebuilt"));
    assert_eq!((found.header("x-own"), found.header("location")), (Some("1"), Some("/charges/7")));
    assert_ne!(found.header("date"), Some("today"));
    assert_eq!(found.header(":found"), None);
    assert_eq!(server.calls.count(), 1);
    while observed.next().await != EventKind::Rebuilt {}
    let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
    let shown = server.send(request("GET", &path).header("idempotency-key", super::world::KEY).empty()).await;
    assert!(shown.text().contains("x-own") && !shown.text().contains(":found"), "{}", shown.text());
}

#[tokio::test]
async fn a_response_found_by_a_probe_is_stored_like_others() {
    let (server, _watching) =
        doubted(RouteSettings { response_bytes_max: 5, ..RouteSettings::default() }).await;
    assert_eq!(server.charge(5).await.status, 500);
    settled(&server).await.is_problem(409, "IDEMPOTENCY_RESPONSE_NOT_RETAINED", false);
    let located = |summary: StoredSummary, _: Parts| async move {
        Some(Response::new(Body::from(Bytes::from(format!("{:?}", summary.location)))))
    };
    let (server, _watching) =
        doubted(RouteSettings { retain: Retain::rebuilt_by(located), ..RouteSettings::default() }).await;
    assert_eq!(server.charge(5).await.status, 500);
    let rebuilt = settled(&server).await;
    assert_eq!((rebuilt.status, rebuilt.text()), (200, "Some(\"/charges/7\")"));
    assert_eq!(rebuilt.header("idempotency-replayed"), Some("rebuilt"));
}

#[tokio::test]
async fn an_authorizer_may_refuse_a_replay() {
    let (is_revoked, checks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let (revoked, counter) = (Arc::clone(&is_revoked), Arc::clone(&checks));
    let authorize = Authorize::by(move |retry: Parts| {
        counter.fetch_add(1, Ordering::SeqCst);
        assert_eq!(retry.uri.path(), "/charges");
        assert!(!retry.headers.contains_key("operation-id"));
        assert!(retry.extensions.get::<OperationId>().is_some());
        let is_revoked = revoked.load(Ordering::SeqCst);
        async move {
            if !is_revoked {
                return Ok(());
            }
            let mut refusal = Response::new(Body::from(Bytes::from("log in again")));
            *refusal.status_mut() = StatusCode::UNAUTHORIZED;
            refusal.headers_mut().insert("www-authenticate", http::HeaderValue::from_static("Bearer"));
            Err(refusal)
        }
    });
    let layer =
        Layer::new(engine().await, RouteSettings { authorize: Some(authorize), ..RouteSettings::default() });
    let (layer, mut observed) = Observed::over(layer.expect("valid").publishing(""));
    let server = Server::under(layer, super::world::charged).await;
    let alice = |builder: http::request::Builder| builder.header("authorization", "Bearer alice");
    let send = || server.send(alice(post("/charges")).json("{}"));
    let first = send().await;
    assert_eq!((first.status, checks.load(Ordering::SeqCst)), (201, 0), "the handler itself was called");
    assert!(matches!(observed.next().await, EventKind::Ran(Some(_))));
    assert!(send().await.is_replay());
    assert_eq!((observed.next().await, checks.load(Ordering::SeqCst)), (EventKind::Replayed, 1));

    is_revoked.store(true, Ordering::SeqCst);
    let refused = send().await;
    assert_eq!((refused.status, refused.text(), refused.is_replay()), (401, "log in again", false));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!(
        (refused.header("operation-id"), refused.header("idempotency-expires")),
        (first.header("operation-id"), None)
    );
    assert_eq!(observed.next().await, EventKind::NotAuthorized);

    let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
    let shown = server.send(alice(request("GET", &path)).empty()).await;
    let shown: serde_json::Value = serde_json::from_slice(&shown.body).expect("JSON");
    assert_eq!((&shown["state"], shown.get("result")), (&"SUCCEEDED".into(), None), "no way around it");

    is_revoked.store(false, Ordering::SeqCst);
    assert!(send().await.is_replay());
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn a_handler_sees_its_attempt_and_decides_its_outcome() {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let charge = |handle: Option<Extension<Handle>>| async move {
        let Some(Extension(handle)) = handle else { return "unprotected".into_response() };
        handle.set_outcome_hint(semel_http::OutcomeHint::NotApplied);
        handle.attempt().check().expect("it is the attempt's own");
        let text = format!("{} {}", handle.operation_id(), handle.attempt().number());
        if handle.attempt().number() == 1 {
            return (StatusCode::INTERNAL_SERVER_ERROR, text).into_response();
        }
        handle.clear_outcome_hint();
        text.into_response()
    };
    let router = axum::Router::new().route("/charges", axum::routing::post(charge)).layer(layer);
    let server = Server::of(router, super::world::Calls::default()).await;
    let unkeyed = server.send(request("POST", "/charges").json("{}")).await;
    assert_eq!(unkeyed.text(), "unprotected");
    for (status, attempt, is_replay) in [(500, 1, false), (200, 2, false), (200, 2, true)] {
        let reply = server.charge(5).await;
        let text = format!("{} {attempt}", reply.header("operation-id").expect("an id"));
        assert_eq!((reply.status, reply.text(), reply.is_replay()), (status, text.as_str(), is_replay));
    }
}
