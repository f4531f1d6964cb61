//! Keys from sources other than `Idempotency-Key`.

use super::bodies::gzip;
use super::world::{Bodies, KEY, Reply, Server, charged, request};
use axum::extract::Request;
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use semel::core::fingerprint::Pointer;
use semel::core::policy::{Class, Policy};
use semel_http::{KeyRule, KeySource, RouteSettings};

fn at(pointer: &str) -> KeySource {
    KeySource::Pointer(Pointer::parse(pointer).expect("a pointer"))
}

fn required(source: KeySource) -> RouteSettings {
    RouteSettings { key: KeyRule::Required, key_source: source, ..RouteSettings::default() }
}

fn optional(source: KeySource) -> RouteSettings {
    RouteSettings { key_source: source, ..RouteSettings::default() }
}

async fn hook(server: &Server, body: &str) -> Reply {
    server.send(request("POST", "/hook").json(body)).await
}

#[tokio::test]
async fn a_webhook_is_identified_by_an_id_in_its_body() {
    let server = Server::new(required(at("/event/id")), charged).await;
    let first = hook(&server, "{\"event\":{\"id\":\"e1\"},\"n\":1}").await;
    assert_eq!((first.status, first.text()), (201, "charge 1"));
    assert!(first.header("operation-id").is_some());
    let again = hook(&server, "{\"n\":1.0, \"event\":{\"id\":\"\\u00651\"}}").await;
    assert_eq!((again.text(), again.is_replay()), ("charge 1", true));
    let zipped = gzip(b"{\"event\":{\"id\":\"e1\"},\"n\":1}");
    let zipped = request("POST", "/hook")
        .header("content-encoding", "gzip")
        .header("content-type", "application/json")
        .bytes(zipped);
    assert!(server.send(zipped).await.is_replay());
    assert_eq!(hook(&server, "{\"event\":{\"id\":\"e2\"},\"n\":1}").await.text(), "charge 2");
    let other = hook(&server, "{\"event\":{\"id\":\"e1\"},\"n\":2}").await;
    other.is_problem(422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", false);
    let long = format!("{{\"event\":{{\"id\":\"e3\"}},\"n\":\"{}\"}}", "x".repeat(100_000));
    assert_eq!(hook(&server, &long).await.text(), "charge 3");
    assert!(hook(&server, &long).await.is_replay());
}

#[tokio::test]
async fn numbers_are_keys_by_their_value() {
    let server = Server::new(required(at("/id")), charged).await;
    for (body, call) in
        [("{\"id\":100}", 1), ("{\"id\":1e2}", 1), ("{\"id\":100.0}", 1), ("{\"id\":\"100\"}", 2)]
    {
        assert_eq!(hook(&server, body).await.text(), format!("charge {call}"), "{body}");
    }
    let digits = "9".repeat(256);
    hook(&server, &format!("{{\"id\":{digits}}}")).await.is_problem(400, "INVALID_IDEMPOTENCY_KEY", false);
}

#[tokio::test]
async fn a_body_without_the_member_has_no_key() {
    let server = Server::new(required(at("/id")), charged).await;
    let missing = hook(&server, "{\"other\":1}").await;
    missing.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    assert!(missing.text().contains("/id"), "{}", missing.text());
    let text = request("POST", "/hook").header("content-type", "text/plain").bytes("id=1");
    server.send(text).await.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    server.send(request("POST", "/hook").empty()).await.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    for bad in ["{\"id\":null}", "{\"id\":true}", "{\"id\":[1]}", "{\"id\":\"\"}", "{\"id\":\"a\\nb\"}"] {
        hook(&server, bad).await.is_problem(400, "INVALID_IDEMPOTENCY_KEY", false);
    }
    hook(&server, "{\"id\":1,\"id\":2}").await.is_problem(400, "UNFINGERPRINTABLE_REQUEST", false);
    assert_eq!(server.calls.count(), 0);
}

#[tokio::test]
async fn a_missing_optional_body_key_leaves_the_request_unchanged() {
    let server = Server::new(optional(at("/id")), |_, request: Request| async move {
        let prefer = request.headers().contains_key("prefer");
        let attempt = request.headers().contains_key("idempotency-attempt");
        let body = request.into_body().collect().await.expect("a complete body").to_bytes();
        format!("{} {prefer} {attempt}", body.len()).into_response()
    })
    .await;
    for _ in 0..2 {
        let body = format!("{{\"other\":\"{}\"}}", "x".repeat(99_988));
        let sent = request("POST", "/hook").header("prefer", "respond-async").json(&body);
        let reply = server.send(sent).await;
        assert_eq!((reply.text(), reply.header("operation-id")), ("100000 true false", None));
    }
    assert_eq!(server.calls.count(), 2);
}

#[tokio::test]
async fn an_unreadable_body_is_refused_even_with_optional_keys() {
    let server = Server::new(RouteSettings { request_bytes_max: 100, ..optional(at("/id")) }, charged).await;
    let long = format!("{{\"id\":\"{}\"}}", "x".repeat(100));
    hook(&server, &long).await.is_problem(413, "IDEMPOTENCY_REQUEST_TOO_LARGE", false);
    let upgrade = request("POST", "/hook").header("connection", "upgrade").header("upgrade", "x").json("{}");
    server.send(upgrade).await.is_problem(501, "STREAMING_NOT_PROTECTED", false);
    let events = |id: &str| request("POST", "/hook").header("accept", "text/event-stream").json(id);
    server.send(events("{\"id\":1}")).await.is_problem(501, "STREAMING_NOT_PROTECTED", false);
    assert_eq!(server.calls.count(), 0);
    assert_eq!(server.send(events("{}")).await.status, 201);
}

#[tokio::test]
async fn by_its_fingerprint_the_same_payload_is_the_same_command() {
    let server = Server::new(required(KeySource::Fingerprint), charged).await;
    assert_eq!(hook(&server, "{\"n\":1}").await.text(), "charge 1");
    assert!(hook(&server, "{ \"n\": 1.0 }").await.is_replay());
    assert_eq!(hook(&server, "{\"n\":2}").await.text(), "charge 2");
    let alice = request("POST", "/hook").header("authorization", "Bearer alice").json("{\"n\":1}");
    assert_eq!(server.send(alice).await.text(), "charge 3", "another caller has another key");
}

#[tokio::test]
async fn a_composite_key_needs_all_parts_and_their_boundaries() {
    let source =
        KeySource::Composite(vec![KeySource::Header(http::HeaderName::from_static("x-account")), at("/id")]);
    let server = Server::new(required(source), charged).await;
    let send = |account: &str, id: &str| {
        server
            .send(request("POST", "/hook").header("x-account", account).json(&format!("{{\"id\":\"{id}\"}}")))
    };
    assert_eq!(send("a", "bc").await.text(), "charge 1");
    assert_eq!(send("ab", "c").await.text(), "charge 2");
    assert!(send("a", "bc").await.is_replay());
    hook(&server, "{\"id\":\"bc\"}").await.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
    let no_id = request("POST", "/hook").header("x-account", "a").json("{}");
    server.send(no_id).await.is_problem(400, "MISSING_IDEMPOTENCY_KEY", false);
}

#[tokio::test]
async fn a_key_from_elsewhere_is_not_turned_into_the_header() {
    let settings = RouteSettings { policy: Policy::new(Class::Downstream), ..required(at("/id")) };
    let server = Server::new(settings, |_, request: Request| async move {
        request
            .headers()
            .get("idempotency-key")
            .map_or("none".into(), |key| key.as_bytes().to_vec())
            .into_response()
    })
    .await;
    assert_eq!(hook(&server, "{\"id\":\"an-id-of-16-characters\"}").await.text(), "none");
    let own = request("POST", "/hook").header("idempotency-key", format!("\"{KEY}\""));
    assert_eq!(
        server.send(own.json("{\"id\":2}")).await.text(),
        format!("\"{KEY}\""),
        "the client's own key passes"
    );
}
