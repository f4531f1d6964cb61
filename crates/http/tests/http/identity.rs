//! Who owns a key, what it applies to, and which requests are equal.

use super::bodies::gzip;
use super::world::{Bodies, Calls, KEY, Server, app, charged, engine, post, request};
use axum::Router;
use axum::extract::{OriginalUri, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::IntoResponse;
use axum::routing::post as on_post;
use semel::core::scope::Identity;
use semel_http::{Callers, KeyRule, Layer, NotIdentified, RouteSettings, Routes};

#[tokio::test]
async fn peer_bug_quoted_and_bare_keys_are_two() {
    let server = Server::new(RouteSettings::default(), charged).await;
    let quoted =
        request("POST", "/charges").header("idempotency-key", format!("\"{KEY}\"")).json("{\"amount\":5}");
    assert_eq!(server.send(quoted).await.status, 201);
    assert!(server.charge(5).await.is_replay());
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn peer_bug_a_key_not_scoped_to_caller_method_and_path() {
    let server = Server::new(RouteSettings::default(), charged).await;
    let sent = [
        post("/charges"),
        post("/refunds"),
        request("PATCH", "/charges").header("idempotency-key", KEY),
        post("/charges").header("authorization", "Bearer alice"),
        post("/charges").header("authorization", "Bearer bob"),
        post("/charges").header("authorization", "Basic bob"),
    ];
    for (call, request) in (1..).zip(sent) {
        let reply = server.send(request.json("{}")).await;
        assert_eq!((reply.text(), reply.is_replay()), (format!("charge {call}").as_str(), false));
    }
    let again = server.send(post("/charges").header("authorization", "bearer bob").json("{}")).await;
    assert_eq!((again.text(), again.is_replay()), ("charge 5", true));
}

#[tokio::test]
async fn tenants_share_no_key() {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let layer = layer.tenant(|parts| Some(parts.headers.get("x-tenant")?.as_bytes().to_vec()));
    let server = Server::under(layer, charged).await;
    for (tenant, call) in [("a", "charge 1"), ("b", "charge 2"), ("a", "charge 1")] {
        assert_eq!(server.send(post("/charges").header("x-tenant", tenant).json("{}")).await.text(), call);
    }
}

/// Authentication that knows two tokens of one user, and can revoke the second.
fn authenticated(
    layer: Layer,
    calls: &Calls,
    is_revoked: std::sync::Arc<std::sync::atomic::AtomicBool>,
) -> Router {
    let by_user = Callers::by(|parts| {
        let user = parts.extensions.get::<&'static str>().ok_or(NotIdentified::ByRule)?;
        Ok(Identity::header(*user).into())
    });
    let check = move |mut request: Request, next: Next| {
        let is_revoked = is_revoked.clone();
        async move {
            let token = request.headers().get("authorization").map(|value| value.as_bytes().to_vec());
            match token.as_deref() {
                Some(b"Bearer old") => {}
                Some(b"Bearer new") if !is_revoked.load(std::sync::atomic::Ordering::SeqCst) => {}
                _ => return StatusCode::UNAUTHORIZED.into_response(),
            }
            request.extensions_mut().insert("alice");
            next.run(request).await
        }
    };
    app(layer.callers(by_user), calls, charged).layer(axum::middleware::from_fn(check))
}

#[tokio::test]
async fn peer_bug_a_rotated_token_reruns_and_a_revoked_one_replays() {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let (calls, is_revoked) = (Calls::default(), std::sync::Arc::default());
    let server = Server::of(authenticated(layer, &calls, std::sync::Arc::clone(&is_revoked)), calls).await;
    let send = |token: &str| server.send(post("/charges").header("authorization", token).json("{}"));
    assert_eq!(send("Bearer old").await.status, 201);
    assert!(send("Bearer new").await.is_replay(), "the user is the same, whatever the token");
    is_revoked.store(true, std::sync::atomic::Ordering::SeqCst);
    let refused = send("Bearer new").await;
    assert_eq!((refused.status, refused.is_replay()), (401, false));
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn a_rule_that_finds_no_caller_refuses() {
    let layer = Layer::new(engine().await, RouteSettings::default()).expect("valid");
    let server = Server::under(layer.callers(Callers::by(|_| Err(NotIdentified::ByRule))), charged).await;
    server.charge(5).await.is_problem(400, "CALLER_NOT_IDENTIFIED", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn peer_bug_numbers_compared_as_floats_and_missing_as_null() {
    let server = Server::new(RouteSettings::default(), charged).await;
    let send = |text: &'static str| server.send(post("/charges").json(text));
    assert_eq!(send(r#"{"a":9007199254740993,"b":1}"#).await.status, 201);
    assert!(send(r#"{ "b" : 1.0, "a" : 9007199254740993 }"#).await.is_replay());
    for other in [
        r#"{"a":9007199254740992,"b":1}"#,
        r#"{"a":9007199254740993,"b":1,"c":null}"#,
        r#"{"a":9007199254740993,"b":"1"}"#,
    ] {
        assert_eq!(send(other).await.status, 422, "{other}");
    }
}

#[tokio::test]
async fn peer_bug_query_content_type_or_body_end_not_compared() {
    let server = Server::new(RouteSettings::default(), charged).await;
    let mut large = vec![b'x'; 1 << 20];
    let send = |path: &'static str, kind: &'static str, body: Vec<u8>| {
        server.send(post(path).header("content-type", kind).bytes(body))
    };
    assert_eq!(send("/x?a=1", "text/plain", large.clone()).await.status, 201);
    assert_eq!(send("/x?a=2", "text/plain", large.clone()).await.status, 422);
    assert_eq!(send("/x?a=1", "text/html", large.clone()).await.status, 422);
    *large.last_mut().expect("a byte") = b'y';
    assert_eq!(send("/x?a=1", "text/plain", large.clone()).await.status, 422);
    *large.last_mut().expect("a byte") = b'x';
    assert!(send("/x?a=1", "Text/Plain", large).await.is_replay());
}

#[tokio::test]
async fn peer_bug_a_random_boundary_or_compression_is_a_mismatch() {
    let server = Server::new(RouteSettings::default(), charged).await;
    let form = |boundary: &str| {
        let body = format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--{boundary}--\r\n"
        );
        post("/forms").header("content-type", format!("multipart/form-data; boundary={boundary}")).bytes(body)
    };
    assert_eq!(server.send(form("one")).await.status, 201);
    assert!(server.send(form("two")).await.is_replay());
    assert_eq!(server.send(post("/json").json("{\"a\":1}")).await.status, 201);
    let zipped = post("/json").header("content-type", "application/json").header("content-encoding", "gzip");
    assert!(server.send(zipped.bytes(gzip(b"{\"a\":1.0}"))).await.is_replay());
}

#[tokio::test]
async fn peer_bug_validation_skipped_on_the_cached_path() {
    let server = Server::new(RouteSettings::default(), charged).await;
    assert_eq!(server.charge(5).await.status, 201);
    for _ in 0..3 {
        assert!(server.charge(5).await.is_replay());
        assert_eq!(server.charge(6).await.status, 422);
    }
    assert_eq!(server.calls.count(), 1);
}

#[tokio::test]
async fn peer_bug_the_first_operations_terms_applied_to_the_second() {
    let required = RouteSettings { key: KeyRule::Required, ..RouteSettings::default() };
    let small =
        RouteSettings { response_bytes_max: 3, name: Some("small".into()), ..RouteSettings::default() };
    let off = RouteSettings { key: KeyRule::Off, ..RouteSettings::default() };
    let hooks = RouteSettings::default().keyed_by(http::HeaderName::from_static("webhook-id"));
    let routes = Routes::new(RouteSettings::default())
        .and_then(|routes| routes.with("/required", required))
        .and_then(|routes| routes.with("/small/{id}", small))
        .and_then(|routes| routes.with("/off", off))
        .and_then(|routes| routes.with("/hooks", hooks))
        .expect("valid");
    let server = Server::under(Layer::routed(engine().await, routes).expect("valid"), charged).await;
    let missing = server.send(request("POST", "/required").json("{}")).await;
    missing.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    assert_eq!(server.send(request("POST", "/other").json("{}")).await.status, 201);
    assert_eq!(server.send(post("/small/7").json("{}")).await.status, 201);
    server.send(post("/small/7").json("{}")).await.is_problem(
        409,
        "IDEMPOTENCY_RESPONSE_NOT_RETAINED",
        false,
    );
    let other = server.send(post("/small/8").json("{}")).await;
    other.is_problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false);
    assert_eq!(server.send(post("/other").json("{}")).await.status, 201);
    assert!(server.send(post("/other").json("{}")).await.is_replay());
    for _ in 0..2 {
        assert!(!server.send(post("/off").json("{}")).await.is_replay());
    }
    for is_replay in [false, true] {
        let hook = request("POST", "/hooks").header("webhook-id", "w1").json("{}");
        assert_eq!(server.send(hook).await.is_replay(), is_replay);
    }
}

#[tokio::test]
async fn nested_routers_differ_by_the_requests_full_path() {
    let engine = engine().await;
    let calls = Calls::default();
    let nested = |calls: &Calls| {
        let layer = Layer::new(engine.clone(), RouteSettings::default()).expect("valid");
        let layer = layer.target(|parts| parts.extensions.get::<OriginalUri>().map(|uri| uri.0.clone()));
        let calls = calls.clone();
        let handler = move || async move { format!("charge {}", calls.one()) };
        Router::new().route("/charges", on_post(handler)).layer(layer)
    };
    let router = Router::new().nest("/a", nested(&calls)).nest("/b", nested(&calls));
    let server = Server::of(router, calls).await;
    for (path, call) in [("/a/charges", "charge 1"), ("/b/charges", "charge 2"), ("/a/charges", "charge 1")] {
        assert_eq!(server.send(post(path).json("{}")).await.text(), call);
    }
}
