//! The situations in which a client gets no outcome, one by one, on a durable store.

use super::world::{Bodies, Calls, Gate, KEY, Scratch, Server, app, charged, engine_on, post, request};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use http::Method;
use semel::core::classify::Rules;
use semel::core::policy::{Class, Policy};
use semel_http::{KeyRule, Layer, MismatchStatus, RouteSettings};
use std::time::Duration;

/// A server on a file, and its directory.
async fn on_sqlite(name: &str, settings: RouteSettings) -> (Server, Scratch) {
    let scratch = Scratch::new(name);
    let layer = Layer::new(engine_on(scratch.store()).await, settings).expect("valid");
    (Server::under(layer, charged).await, scratch)
}

#[tokio::test]
async fn a_missing_key_differs_from_an_empty_one() {
    let (server, _scratch) =
        on_sqlite("missing", RouteSettings { key: KeyRule::Required, ..RouteSettings::default() }).await;
    let missing = server.send(request("POST", "/charges").json("{}")).await;
    missing.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    let empty = server.send(request("POST", "/charges").header("idempotency-key", "").json("{}")).await;
    empty.is_problem(400, "INVALID_IDEMPOTENCY_KEY", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn keys_that_could_mean_two_things_or_nothing_are_refused() {
    let (server, _scratch) = on_sqlite("invalid", RouteSettings::default()).await;
    let long = "x1".repeat(200);
    for bad in ["short", "a key with spaces in it", "someone@example.com", "aaaaaaaaaaaaaaaaaaaa", &long] {
        let reply = server.send(request("POST", "/charges").header("idempotency-key", bad).json("{}")).await;
        reply.is_problem(400, "INVALID_IDEMPOTENCY_KEY", false);
        assert!(!reply.text().contains(bad), "{}", reply.text());
    }
    let twice = server.send(post("/charges").header("idempotency-key", KEY).json("{}")).await;
    twice.is_problem(400, "INVALID_IDEMPOTENCY_KEY", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn a_caller_that_cannot_be_identified_is_refused_with_the_fix() {
    let (server, _scratch) = on_sqlite("caller", RouteSettings::default()).await;
    for (name, value) in [("cookie", "session=1"), ("authorization", "AWS4-HMAC-SHA256 Credential=x")] {
        let reply = server.send(post("/charges").header(name, value).json("{}")).await;
        reply.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
        assert!(reply.text().contains("`Layer::callers`") && !reply.text().contains(value));
    }
    let twice = post("/charges").header("authorization", "Bearer a").header("authorization", "Bearer b");
    server.send(twice.json("{}")).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
    assert_eq!(server.calls.count(), 0);
    let unkeyed = server.send(request("POST", "/charges").header("cookie", "session=1").json("{}")).await;
    assert_eq!(unkeyed.status, 201, "without a key nobody needs to be identified");
}

#[tokio::test]
async fn a_body_that_is_not_what_it_says_is_refused() {
    let (server, _scratch) = on_sqlite("unfingerprintable", RouteSettings::default()).await;
    for bad in ["{\"a\":1,\"a\":2}", "{", "{\"a\":\"\\ud800\"}"] {
        let reply = server.send(post("/charges").json(bad)).await;
        reply.is_problem(400, "UNFINGERPRINTABLE_REQUEST", false);
    }
    let corrupt = post("/charges").header("content-encoding", "gzip").json("not gzip");
    server.send(corrupt).await.is_problem(400, "UNFINGERPRINTABLE_REQUEST", false);
    let large = format!("{{\"a\":1,\"b\":\"{}\",\"a\":2}}", "x".repeat(100_000));
    server.send(post("/charges").json(&large)).await.is_problem(400, "UNFINGERPRINTABLE_REQUEST", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn a_key_with_another_payload_is_refused() {
    for (mismatch, status) in [(MismatchStatus::UnprocessableContent, 422), (MismatchStatus::Conflict, 409)] {
        let (server, _scratch) =
            on_sqlite(&format!("mismatch-{status}"), RouteSettings { mismatch, ..RouteSettings::default() })
                .await;
        assert_eq!(server.charge(5).await.status, 201);
        let other = server.charge(6).await;
        other.is_problem(status, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false);
        assert!(other.header("operation-id").is_some());
        assert!(
            other.header("idempotency-replayed").is_none() && other.header("idempotency-expires").is_none()
        );
        assert_eq!(server.calls.count(), 1);
    }
}

#[tokio::test]
async fn peer_bug_in_progress_answered_before_mismatch_was_checked() {
    let scratch = Scratch::new("in-progress");
    let gate = Gate::new();
    let within = gate.clone();
    let settings = RouteSettings { wait: Some(Duration::ZERO), ..RouteSettings::default() };
    let layer = Layer::new(engine_on(scratch.store()).await, settings).expect("valid");
    let calls = Calls::default();
    let answer = move |call, request| {
        let gate = within.clone();
        async move {
            gate.pass().await;
            charged(call, request).await
        }
    };
    let server = std::sync::Arc::new(Server::of(app(layer, &calls, answer), calls.clone()).await);
    let first = tokio::spawn({
        let server = server.clone();
        async move { server.charge(5).await }
    });
    gate.started().await;
    let running = server.charge(5).await;
    running.is_problem(409, "IDEMPOTENCY_REQUEST_IN_PROGRESS", true);
    assert_eq!(running.header("retry-after"), Some("1"));
    server.charge(6).await.is_problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false);
    gate.open();
    let first = first.await.expect("no panic");
    assert_eq!((first.status, first.header("operation-id")), (201, running.header("operation-id")));
    assert!(server.charge(5).await.is_replay());
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn an_outcome_without_proof_is_reported_as_unknown() {
    let scratch = Scratch::new("unknown");
    let layer = Layer::new(engine_on(scratch.store()).await, RouteSettings::default()).expect("valid");
    let server = Server::under(layer, |call, _| async move {
        (StatusCode::INTERNAL_SERVER_ERROR, format!("oops {call}")).into_response()
    })
    .await;
    let first = server.charge(5).await;
    assert_eq!((first.status, first.text()), (500, "oops 1"), "the first caller gets the handler's answer");
    assert!(first.header("operation-id").is_some() && first.header("idempotency-expires").is_none());
    let retry = server.charge(5).await;
    retry.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
    assert_eq!(retry.header("operation-id"), first.header("operation-id"));
    server.charge(6).await.is_problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false);
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn a_request_over_the_limit_is_refused_declared_received_or_decoded() {
    let (server, _scratch) =
        on_sqlite("too-large", RouteSettings { request_bytes_max: 1_000, ..RouteSettings::default() }).await;
    let code = "IDEMPOTENCY_REQUEST_TOO_LARGE";
    server.send(post("/charges").bytes(vec![0; 1_001])).await.is_problem(413, code, false);
    server
        .send(post("/charges").body(super::bodies::chunks(&[600, 600])).expect("a request"))
        .await
        .is_problem(413, code, false);
    let bomb =
        post("/charges").header("content-encoding", "gzip").bytes(super::bodies::gzip(&vec![0; 100_000]));
    server.send(bomb).await.is_problem(413, code, false);
    assert_eq!(server.calls.count(), 0);
    assert_eq!(server.send(post("/charges").bytes(vec![0; 1_000])).await.status, 201);
}

#[tokio::test]
async fn used_up_attempts_are_reported() {
    let policy = Policy::new(Class::External).with(|policy| policy.attempts_max = Some(2)).expect("valid");
    let scratch = Scratch::new("attempts");
    let settings = RouteSettings { policy, rules: Rules::default(), ..RouteSettings::default() };
    let layer = Layer::new(engine_on(scratch.store()).await, settings).expect("valid");
    let server = Server::under(layer, |_, _| async { StatusCode::TOO_MANY_REQUESTS.into_response() }).await;
    for _ in 0..2 {
        let reply = server.charge(5).await;
        assert_eq!((reply.status, reply.header("idempotency-expires")), (429, None));
    }
    server.charge(5).await.is_problem(409, "IDEMPOTENCY_ATTEMPTS_EXHAUSTED", false);
    assert_eq!(server.calls.count(), 2);
}

#[tokio::test]
async fn a_stream_only_request_is_refused_before_it_runs() {
    let (server, _scratch) = on_sqlite("streams", RouteSettings::default()).await;
    let events = post("/charges").header("accept", "text/event-stream").json("{}");
    server.send(events).await.is_problem(501, "STREAMING_NOT_PROTECTED", false);
    let upgrade = post("/charges").header("connection", "upgrade").header("upgrade", "websocket").json("{}");
    server.send(upgrade).await.is_problem(501, "STREAMING_NOT_PROTECTED", false);
    assert_eq!(server.calls.count(), 0);
    let either = post("/charges").header("accept", "text/event-stream, application/json").json("{}");
    assert_eq!(server.send(either).await.status, 201);
    let unkeyed = request("POST", "/charges").header("accept", "text/event-stream").json("{}");
    assert_eq!(server.send(unkeyed).await.status, 201, "elsewhere streams are allowed");
}

#[tokio::test]
async fn a_tunnel_is_refused_only_on_protected_routes() {
    let methods = vec![Method::POST, Method::CONNECT];
    for (methods, expected) in [(methods, 501), (vec![Method::POST], 201)] {
        let (server, _scratch) =
            on_sqlite(&format!("connect-{expected}"), RouteSettings { methods, ..RouteSettings::default() })
                .await;
        let reply = connect(&server).await;
        assert_eq!(reply, expected);
        assert_eq!(server.calls.count(), u32::from(expected == 201));
    }
}

/// The status of an extended CONNECT over HTTP/2, with a path and a key.
async fn connect(server: &Server) -> u16 {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let stream = TokioIo::new(server.connect().await);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut request = http::Request::connect("http://test/charges").header("idempotency-key", KEY);
    request = request.extension(hyper::ext::Protocol::from_static("websocket"));
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).expect("a request");
    sender.send_request(request).await.expect("a response").status().as_u16()
}

#[tokio::test]
async fn methods_that_are_not_protected_pass_untouched() {
    let (server, _scratch) =
        on_sqlite("methods", RouteSettings { key: KeyRule::Required, ..RouteSettings::default() }).await;
    for method in ["GET", "PUT", "DELETE", "OPTIONS"] {
        for _ in 0..2 {
            let reply = server.send(request(method, "/charges").header("idempotency-key", KEY).empty()).await;
            assert_eq!((reply.status, reply.is_replay()), (201, false), "{method}");
            assert!(reply.header("operation-id").is_none());
        }
    }
    assert_eq!(server.calls.count(), 8);
    let settings = RouteSettings { methods: vec![Method::DELETE], ..RouteSettings::default() };
    let (server, _scratch) = on_sqlite("delete", settings).await;
    for is_replay in [false, true] {
        let reply = server.send(request("DELETE", "/charges/7").header("idempotency-key", KEY).empty()).await;
        assert_eq!((reply.status, reply.is_replay()), (201, is_replay));
    }
}
