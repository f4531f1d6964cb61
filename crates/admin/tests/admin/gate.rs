//! Tokens and roles.

use super::world::{World, claim, token};
use semel::quota::Rate;
use semel_admin::{Role, Token};
use serde_json::json;
use std::num::NonZeroU32;
use std::time::Duration;

const NOBODY: &str = "/v1/records/30313233-3435-3637-3839-616263646566";

async fn world_with_tokens() -> World {
    World::with(|options| {
        options.tokens = Role::ALL.map(|role| token(role.name(), &[role])).to_vec();
    })
    .await
}

#[tokio::test]
async fn without_tokens_the_own_machine_may_do_everything_but_read_bodies() {
    let world = World::new().await;
    for path in ["/metrics", "/v1/records", "/openapi.json"] {
        assert_eq!(world.get(path).await.status, 200, "{path}");
    }
    let attempt = world.claimed("order-1", &json!({})).await;
    let outcome =
        attempt.with(&json!({ "outcome": "succeeded", "response": { "status": 200, "body": "s3cret" } }));
    assert_eq!(world.post(&attempt.at("outcome"), &outcome).await.status, 200);
    let shown = world.get(&format!("/v1/records/{}", attempt.id)).await;
    assert_eq!(shown.json()["response"]["status"], 200);
    assert!(!shown.text().contains("s3cret") && shown.json().get("fingerprint").is_none());
}

#[tokio::test]
async fn a_name_that_a_web_page_could_have_chosen_is_refused() {
    let world = World::new().await;
    let port = world.address.port();
    for host in [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        assert_eq!(world.ask("GET", "/v1/records").header("host", &host).send().await.status, 200, "{host}");
    }
    let next = port.wrapping_add(1);
    for host in [format!("evil.example:{port}"), "localhost".into(), format!("localhost:{next}")] {
        let reply = world.ask("GET", "/v1/records").header("host", &host).send().await;
        assert_eq!(reply.problem(), (421, "HOST_NOT_ALLOWED".into()), "{host}");
    }
    let twice = world.ask("GET", "/v1/records").add_header("host", &format!("localhost:{port}")).send().await;
    assert!(twice.status == 421 || twice.status == 400, "{twice:?}");
    // Health probes may use any host name.
    assert_eq!(world.ask("GET", "/healthz").header("host", "pod-7").send().await.status, 200);
}

#[tokio::test]
async fn a_web_form_cannot_change_anything() {
    let world = World::new().await;
    let body = claim("order-1", &json!({})).to_string();
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let reply = world.ask("POST", "/v1/claims").text(&body).header("content-type", kind).send().await;
        assert_eq!(reply.problem(), (415, "UNSUPPORTED_MEDIA_TYPE".into()), "{kind}");
    }
    let untyped = world.ask("POST", "/v1/claims").text(&body).send().await;
    assert_eq!(untyped.problem().0, 415);
    assert_eq!(world.get("/v1/records").await.json()["records"], json!([]));
    let preflight = world.ask("OPTIONS", "/v1/claims").header("origin", "https://evil.example").send().await;
    assert_eq!(preflight.problem().0, 405);
    assert_eq!(preflight.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn with_tokens_every_request_needs_one() {
    let world = world_with_tokens().await;
    for (method, path) in [
        ("GET", "/v1/records"),
        ("GET", "/metrics"),
        ("GET", "/openapi.json"),
        ("POST", "/v1/claims"),
        ("GET", "/nothing"),
        ("POST", "/v1/records"),
    ] {
        let reply = world.ask(method, path).send().await;
        assert_eq!(reply.problem(), (401, "UNAUTHENTICATED".into()), "{method} {path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer realm=\"semel\""));
    }
    for open in ["/healthz", "/readyz"] {
        assert_eq!(world.get(open).await.status, 200);
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_in_every_shape() {
    let world = world_with_tokens().await;
    for line in [
        "Bearer wrong",
        "Bearer read-secre",
        "Basic read-secret",
        "read-secret",
        "Bearer",
        "Bearer READ-SECRET",
    ] {
        let reply = world.ask("GET", "/v1/records").header("authorization", line).send().await;
        assert_eq!(reply.problem(), (401, "UNAUTHENTICATED".into()), "{line}");
    }
    let twice = world
        .ask("GET", "/v1/records")
        .token("read-secret")
        .add_header("authorization", "Bearer read-secret");
    assert_eq!(twice.send().await.problem().0, 401);
    let right = world.ask("GET", "/v1/records").header("authorization", "bearer read-secret").send().await;
    assert_eq!(right.status, 200);
}

#[tokio::test]
async fn each_role_opens_its_own_doors_and_no_others() {
    let world = world_with_tokens().await;
    let resolve = format!("{NOBODY}/resolve");
    let release = format!("{NOBODY}/release");
    let why = json!({ "reason": "for the test" });
    let applied = json!({ "outcome": "applied", "reason": "for the test" });
    let renew = "/v1/claims/30313233-3435-3637-3839-616263646566/renew";
    let token_of_nobody = json!({ "token": "00".repeat(16) });
    let doors = [
        ("GET", "/metrics", None, "read", 200),
        ("GET", "/v1/records", None, "read", 200),
        ("GET", NOBODY, None, "read", 404),
        ("POST", &resolve, Some(&applied), "operate", 404),
        ("POST", &release, Some(&why), "operate", 404),
        ("GET", "/v1/claims/x", None, "claim", 404),
        ("POST", "/v1/claims", Some(&why), "claim", 400),
        ("POST", renew, Some(&token_of_nobody), "claim", 404),
    ];
    for (method, path, body, opens, status) in doors {
        for role in ["read", "operate", "claim", "bodies"] {
            let ask = world.ask(method, path).token(&format!("{role}-secret"));
            let ask = if let Some(body) = body { ask.json(body) } else { ask };
            let reply = ask.send().await;
            if role == opens {
                assert_eq!(reply.status, status, "{method} {path} with {role}: {}", reply.text());
            } else {
                assert_eq!(reply.problem(), (403, "FORBIDDEN".into()), "{method} {path} with {role}");
            }
        }
    }
    for path in ["/openapi.json", "/.well-known/idempotency"] {
        assert_eq!(world.ask("GET", path).token("bodies-secret").send().await.status, 200);
    }
}

#[tokio::test]
async fn stored_bodies_are_shown_to_those_who_may_read_them_only() {
    let world = World::with(|options| {
        options.tokens = vec![
            token("worker", &[Role::Claim]),
            token("reader", &[Role::Read]),
            token("auditor", &[Role::Read, Role::Bodies]),
        ];
    })
    .await;
    let claimed = world
        .ask("POST", "/v1/claims")
        .token("worker-secret")
        .json(&claim("order-1", &json!({})))
        .send()
        .await;
    let claimed = claimed.json();
    let id = claimed["operationId"].as_str().expect("an id");
    let response = json!({ "status": 201, "headers": [["location", "/charges/7"]], "body": "s3cret" });
    let outcome = json!({ "token": claimed["token"], "outcome": "succeeded", "response": response });
    let ended = world
        .ask("POST", &format!("/v1/claims/{id}/outcome"))
        .token("worker-secret")
        .json(&outcome)
        .send()
        .await;
    assert_eq!(ended.status, 200, "{}", ended.text());
    let record = format!("/v1/records/{id}");
    let reader = world.ask("GET", &record).token("reader-secret").send().await;
    assert_eq!(reader.json()["response"], json!({ "protocol": "http", "status": 201, "retained": true }));
    assert!(!reader.text().contains("s3cret") && !reader.text().contains("/charges/7"));
    let auditor = world.ask("GET", &record).token("auditor-secret").send().await.json();
    assert_eq!(auditor["response"]["body"], "s3cret");
    assert_eq!(auditor["response"]["headers"], json!([["location", "/charges/7"]]));
    assert_eq!(auditor["fingerprint"].as_str().map(str::len), Some(64));
    let worker = world.ask("GET", &format!("/v1/claims/{id}")).token("worker-secret").send().await;
    assert!(!worker.text().contains("s3cret"));
}

fn rate(count: u32, seconds: u64) -> Rate {
    Rate { count: NonZeroU32::new(count).expect("not zero"), per: Duration::from_secs(seconds) }
}

#[tokio::test]
async fn guessing_is_slowed_down_and_never_holds_up_a_right_token() {
    let world = World::with(|options| {
        options.tokens = vec![token("ops", &[Role::Read])];
        options.failures = rate(3, 30);
    })
    .await;
    for _ in 0..3 {
        assert_eq!(world.ask("GET", "/v1/records").token("guess").send().await.problem().0, 401);
    }
    for _ in 0..50 {
        let reply = world.ask("GET", "/v1/records").token("guess").send().await;
        assert_eq!(reply.problem(), (429, "TOO_MANY_REQUESTS".into()));
        assert_eq!(reply.retry_after(), Some(10));
        let right = world.ask("GET", "/v1/records").token("ops-secret").send().await;
        assert_eq!(right.status, 200);
    }
    assert_eq!(world.get("/v1/records").await.problem().0, 401, "a missing token is not a guess");
    assert_eq!(world.get("/healthz").await.status, 200);
    world.pass(Duration::from_secs(10));
    assert_eq!(world.ask("GET", "/v1/records").token("guess").send().await.problem().0, 401);
}

#[tokio::test]
async fn writes_are_limited_and_reads_are_not() {
    let world = World::with(|options| options.writes = rate(2, 20)).await;
    for key in ["order-1", "order-2"] {
        world.claimed(key, &json!({})).await;
    }
    let refused = world.post("/v1/claims", &claim("order-3", &json!({}))).await;
    assert_eq!((refused.problem(), refused.retry_after()), ((429, "TOO_MANY_REQUESTS".into()), Some(10)));
    assert_eq!(world.get("/v1/records").await.json()["records"].as_array().map(Vec::len), Some(2));
    world.pass(Duration::from_secs(10));
    world.claimed("order-3", &json!({})).await;
}

#[tokio::test]
async fn a_token_can_be_replaced_while_both_are_good() {
    let old = token("ops", &[Role::Read]);
    let new = Token { name: "ops".into(), ..token("ops-2", &[Role::Read]) };
    let world = World::with(|options| options.tokens = vec![old, new]).await;
    for presented in ["ops-secret", "ops-2-secret"] {
        assert_eq!(world.ask("GET", "/v1/records").token(presented).send().await.status, 200);
    }
}

#[tokio::test]
async fn responses_are_never_cached_or_framed() {
    let world = world_with_tokens().await;
    let answers = [
        world.get("/healthz").await,
        world.get("/v1/records").await,
        world.ask("GET", "/v1/records").token("read-secret").send().await,
        world.ask("GET", "/nothing").token("read-secret").send().await,
    ];
    for answer in answers {
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert!(
            answer
                .header("content-security-policy")
                .is_some_and(|policy| policy.contains("default-src 'none'"))
        );
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

#[tokio::test]
async fn unknown_paths_and_methods_are_refused_in_the_same_words() {
    let world = World::new().await;
    assert_eq!(world.get("/nothing").await.problem(), (404, "PATH_NOT_FOUND".into()));
    assert_eq!(world.get("/v1/records/x/y/z").await.problem().0, 404);
    let deleted = world.ask("DELETE", "/v1/records").send().await;
    assert_eq!(deleted.problem(), (405, "METHOD_NOT_ALLOWED".into()));
    assert_eq!(deleted.header("allow"), Some("GET,HEAD"));
    let got = world.get("/v1/claims").await;
    assert_eq!((got.problem().0, got.header("allow")), (405, Some("POST")));
    let head = world.ask("HEAD", "/v1/records").send().await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(world.ask("HEAD", NOBODY).send().await.status, 404);
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused() {
    let world = World::with(|options| options.body_bytes_max = 1_000).await;
    let reply = world.post("/v1/claims", &claim("order-1", &json!({ "payload": "x".repeat(2_000) }))).await;
    assert_eq!(reply.problem(), (413, "REQUEST_TOO_LARGE".into()));
    let malformed =
        world.ask("POST", "/v1/claims").text("{").header("content-type", "application/json").send().await;
    assert_eq!(malformed.problem(), (400, "INVALID_REQUEST".into()));
}
