//! The admin address: tokens and roles.

use crate::secure::Authority;
use crate::world::{Gateway, KEY, Scratch, World, does_not_start, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Upstream, charged, response};
use std::net::SocketAddr;
use std::process::Command;

async fn sent(ask: TestRequest, to: SocketAddr) -> Reply {
    ask.send(to).await.expect("an answer")
}

#[tokio::test]
async fn an_admin_address_shows_health_numbers_and_records() {
    let scratch = Scratch::new();
    let upstream = Upstream::start(|_| Act::Say(response("201 Created", &[], "charged"))).await;
    let mut gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    let admin = gateway.admin();
    for _ in 0..2 {
        let reply = sent(TestRequest::post("/charges").key(KEY), gateway.address).await;
        assert_eq!(reply.text(), "charged");
    }
    assert_eq!(sent(TestRequest::get("/healthz"), admin).await.status, 200);
    assert_eq!(sent(TestRequest::get("/readyz"), admin).await.status, 200);
    let numbers = sent(TestRequest::get("/metrics"), admin).await;
    let numbers = numbers.text();
    for line in [
        "idempotency_claims_total{operation=\"other\",outcome=\"ran\"} 1\n",
        "idempotency_claims_total{operation=\"other\",outcome=\"replayed\"} 1\n",
        "idempotency_replays_total{operation=\"other\"} 1\n",
        "idempotency_attempts_total{operation=\"other\",state=\"SUCCEEDED\"} 1\n",
        "idempotency_store_seconds_count{call=\"insert\"} 1\n",
        "idempotency_in_progress{operation=\"other\"} 0\n",
        "idempotency_attempts_under_way 0\n",
    ] {
        assert!(numbers.contains(line), "{line} is not in {numbers}");
    }
    let records = sent(TestRequest::get("/v1/records?state=SUCCEEDED"), admin).await;
    let records = records.text();
    assert!(records.contains("POST /charges") && !records.contains("charged"), "{records}");
    assert_eq!(
        sent(TestRequest::get("/healthz"), gateway.address).await.text(),
        "charged",
        "the path belongs to the service"
    );
}

#[tokio::test]
async fn clients_do_not_see_the_claims_of_workers() {
    let scratch = Scratch::new();
    let upstream = Upstream::start(charged).await;
    let mut gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    let admin = gateway.admin();
    let claim = format!("{{\"operation\":\"job\",\"key\":\"{KEY}\",\"payload\":1}}");
    let claimed = sent(TestRequest::post("/v1/claims").json(&claim), admin).await.json();
    let (id, token) = (claimed["operationId"].as_str().expect("an id"), &claimed["token"]);
    let outcome = format!(
        "{{\"token\":{token},\"outcome\":\"succeeded\",\"response\":{{\"status\":200,\"body\":\"secret\"}}}}"
    );
    let stored = sent(TestRequest::post(&format!("/v1/claims/{id}/outcome")).json(&outcome), admin).await;
    assert_eq!(stored.status, 200, "{stored:?}");
    // Not even for a client without a caller (like the claim) that knows its key.
    let path = format!("/operations/{id}");
    for ask in [TestRequest::get(&path), TestRequest::get(&path).key(KEY)] {
        let reply = sent(ask, gateway.address).await;
        assert_eq!((reply.status, reply.code().as_deref()), (404, Some("OPERATION_NOT_FOUND")), "{reply:?}");
    }
}

#[test]
fn no_admin_address_is_opened_to_other_machines_without_a_token() {
    let flags = ["--store", "memory:", "--upstream", "http://127.0.0.1:1", "--admin", "0.0.0.0:0"];
    let why = does_not_start(&flags);
    assert!(why.contains("can be reached from other machines") && why.contains("semel key token"), "{why}");
}

#[test]
fn a_taken_admin_address_is_reported_with_a_fix() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = other.local_addr().expect("an address").to_string();
    let scratch = Scratch::new();
    let store = format!("sqlite:{}", scratch.file().display());
    let why = does_not_start(&["--store", &store, "--upstream", "http://127.0.0.1:1", "--admin", &taken]);
    for words in [taken.as_str(), "another gateway on this machine", "--admin ADDRESS", "--admin off"] {
        assert!(why.contains(words), "{words} is not in {why}");
    }
    assert!(!scratch.file().exists(), "the store was created");
}

/// A new token and its configuration lines, from `semel key token`.
pub(crate) fn new_token(name: &str, roles: &[&str]) -> (String, String) {
    let roles = roles.iter().flat_map(|role| ["--role", *role]);
    let made = Command::new(env!("CARGO_BIN_EXE_semel")).args(["key", "token", name]).args(roles).output();
    let output = String::from_utf8(made.expect("semel runs").stdout).expect("text");
    let (token, lines) = output.split_once("\n\n").expect("a token and lines");
    assert!(!lines.contains(token), "{output}");
    (format!("Bearer {token}"), lines.to_owned())
}

#[tokio::test]
async fn each_configured_token_allows_only_its_roles() {
    let (reader, reads) = new_token("reader", &["read"]);
    let (operator, operates) = new_token("ops", &["read", "operate"]);
    let (auditor, audits) = new_token("auditor", &["read", "bodies"]);
    let (worker, claims) = new_token("worker", &["claim"]);
    let mut world = World::configured(&[reads, operates, audits, claims].concat(), charged).await;
    let admin = world.gateway.admin();
    let first = world.charge(7).await;
    let id = first.header("operation-id").expect("an id").to_owned();
    let get = |path: &str, token: &str| TestRequest::get(path).with("authorization", token);
    let shown = |token: &str| get(&format!("/v1/records/{id}"), token);

    assert_eq!(sent(TestRequest::get("/healthz"), admin).await.status, 200);
    for path in ["/metrics", "/v1/records", "/openapi.json"] {
        assert_eq!(sent(TestRequest::get(path), admin).await.status, 401, "{path}");
        assert_eq!(sent(get(path, "Bearer semel_wrong"), admin).await.status, 401, "{path}");
        assert_eq!(sent(get(path, &reader), admin).await.status, 200, "{path}");
    }
    for token in [&reader, &operator] {
        let record = sent(shown(token), admin).await;
        assert!(record.status == 200 && !record.text().contains("charge 1"), "{}", record.text());
    }
    assert!(sent(shown(&auditor), admin).await.text().contains("charge 1"));
    assert_eq!(sent(shown(&worker), admin).await.status, 403);

    let release = |token: &str| {
        let ask = TestRequest::post(&format!("/v1/records/{id}/release")).json("{\"reason\":\"a test\"}");
        ask.with("authorization", token)
    };
    for token in [&reader, &auditor, &worker] {
        assert_eq!(sent(release(token), admin).await.status, 403);
    }
    assert_eq!(
        sent(release(&operator), admin).await.status,
        409,
        "admitted, but refused because of the record's state"
    );
    let claim = |token: &str| {
        let body = format!("{{\"operation\":\"job\",\"key\":\"{KEY}\",\"payload\":{{}}}}");
        TestRequest::post("/v1/claims").json(&body).with("authorization", token)
    };
    assert_eq!(sent(claim(&operator), admin).await.status, 403);
    let claimed = sent(claim(&worker), admin).await;
    assert!(claimed.status < 300, "{claimed:?}");
    until(async || world.log().contains("ops").then_some(())).await;
    for token in [&reader, &operator, &auditor, &worker] {
        assert!(!world.log().contains(&token["Bearer ".len()..]), "no token is logged");
    }
}

#[tokio::test]
async fn wrong_tokens_are_limited_as_configured() {
    let (token, lines) = new_token("ops", &["read"]);
    let mut world =
        World::configured(&format!("[admin]\nwrong_tokens_max = \"2/1h\"\n{lines}"), charged).await;
    let admin = world.gateway.admin();
    let metrics = |token: &str| TestRequest::get("/metrics").with("authorization", token);
    assert_eq!(sent(metrics(&token), admin).await.status, 200);
    for _ in 0..2 {
        assert_eq!(sent(metrics("Bearer guess"), admin).await.status, 401);
    }
    let held = sent(metrics("Bearer guess"), admin).await;
    assert_eq!(held.status, 429);
    assert!(held.header("retry-after").is_some());
    assert_eq!(sent(metrics(&token), admin).await.status, 200, "a valid token is still accepted");
}

#[tokio::test]
async fn tokens_are_replaced_while_the_gateway_runs() {
    let ((first, first_lines), (second, second_lines)) =
        (new_token("ops", &["read"]), new_token("ops", &["read"]));
    let mut world = World::configured(&first_lines, charged).await;
    let admin = world.gateway.admin();
    let status = async |token: &str| {
        sent(TestRequest::get("/metrics").with("authorization", token), admin).await.status
    };
    assert_eq!((status(&first).await, status(&second).await), (200, 401));
    world.reconfigure(&format!("{first_lines}{second_lines}"));
    until(async || (status(&second).await == 200).then_some(())).await;
    assert_eq!(status(&first).await, 200, "both tokens work during a rotation");
    world.reconfigure(&second_lines);
    until(async || (status(&first).await == 401).then_some(())).await;
    assert_eq!(status(&second).await, 200);
}

#[tokio::test]
async fn the_description_says_whether_a_token_is_needed_now() {
    let (token, lines) = new_token("ops", &["read"]);
    let mut world = World::configured("", charged).await;
    let admin = world.gateway.admin();
    let described = || TestRequest::get("/openapi.json");
    let needed = |reply: &Reply| reply.json()["security"].clone();
    let (always, at_will) = (serde_json::json!([{ "token": [] }]), serde_json::json!([{ "token": [] }, {}]));
    assert_eq!(needed(&sent(described(), admin).await), at_will);
    world.reconfigure(&lines);
    until(async || (sent(described(), admin).await.status == 401).then_some(())).await;
    assert_eq!(needed(&sent(described().with("authorization", &token), admin).await), always);
    world.reconfigure("");
    let open = until(async || Some(sent(described(), admin).await).filter(|reply| reply.status == 200)).await;
    assert_eq!(needed(&open), at_will);
}

#[tokio::test]
async fn the_admin_address_speaks_tls_where_the_file_says_so() {
    let scratch = Scratch::new();
    let ours = Authority::new("ours");
    let server = ours.server();
    let [certificate, key] = [("cert.pem", &server.pem), ("key.pem", &server.key_pem)]
        .map(|(name, text)| scratch.write(name, text).display().to_string());
    let (token, lines) = new_token("ops", &["read"]);
    let terms = format!("[admin]\ntls_cert = '{certificate}'\ntls_key = '{key}'\n{lines}");
    let mut world = World::configured_in(scratch, &terms, charged).await;
    let admin = world.gateway.admin();
    let metrics = TestRequest::get("/metrics").with("authorization", &token);
    assert_eq!(ours.send(metrics.clone(), admin, None).await.expect("an answer").status, 200);
    assert!(metrics.send(admin).await.is_err(), "plain HTTP must fail");
}

/// Waits until the metrics contain this line.
async fn counted(admin: SocketAddr, line: &str) {
    until(async || sent(TestRequest::get("/metrics"), admin).await.text().contains(line).then_some(())).await;
}

#[tokio::test]
async fn stored_records_are_counted_by_route() {
    let scratch = Scratch::new();
    let gate = Gate::closed();
    let held = gate.clone();
    let upstream = Upstream::start(move |seen| match &seen.line {
        line if line.contains("/broken") => Act::End,
        line if line.contains("/slow") => Act::After(held.clone(), Box::new(charged(seen))),
        _ => charged(seen),
    })
    .await;
    scratch.configure(&format!(
        "[upstream]\nurl = \"http://{}\"\n[store]\nurl = 'sqlite:{}'\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [[operation]]\nname = \"charge\"\npath = \"/accounts/{{id}}/charges\"\n\
         [[operation]]\npath = \"/accounts/{{id}}/broken\"\n",
        upstream.address,
        scratch.file().display()
    ));
    let config = scratch.config();
    let mut gateway = Gateway::run(&scratch, &["--config", config.to_str().expect("text")]);
    let admin = gateway.admin();
    for account in 4711..4714 {
        for (path, status) in [("charges", 201), ("broken", 502)] {
            let ask = TestRequest::post(&format!("/accounts/{account}/{path}")).key(KEY);
            assert_eq!(
                sent(ask.with("authorization", format!("Bearer {account}")), gateway.address).await.status,
                status
            );
        }
    }
    for line in [
        "idempotency_store_up 1\n",
        "idempotency_store_records{state=\"SUCCEEDED\"} 3\n",
        "idempotency_store_records{state=\"UNKNOWN\"} 3\n",
        "idempotency_unknown{operation=\"/accounts/{id}/broken\"} 3\n",
        "idempotency_unknown{operation=\"charge\"} 0\n",
        "idempotency_records{operation=\"charge\",state=\"SUCCEEDED\"} 3\n",
        "idempotency_records{operation=\"/accounts/{id}/broken\",state=\"UNKNOWN\"} 3\n",
        "idempotency_records{operation=\"other\",state=\"UNKNOWN\"} 0\n",
        "idempotency_records_counted_timestamp_seconds ",
        "idempotency_store_hazards{severity=\"danger\"} 0\n",
        "semel_build_info{version=\"",
    ] {
        counted(admin, line).await;
    }
    let running = tokio::spawn(TestRequest::post("/slow").key(KEY).send(gateway.address));
    counted(admin, "idempotency_in_progress{operation=\"other\"} 1\n").await;
    gate.open();
    running.await.expect("no panic").expect("an answer");
    counted(admin, "idempotency_in_progress{operation=\"other\"} 0\n").await;
    let numbers = sent(TestRequest::get("/metrics"), admin).await;
    assert!(!numbers.text().contains("/4711"), "{}", numbers.text());
}
