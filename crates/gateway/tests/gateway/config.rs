//! The configuration file: its guarantees, its messages, and what overrides it.

use crate::world::{Gateway, KEY, Scratch, World, until};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Upstream, charged, response};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

/// A shop: payments, refunds with their own IDs, events that are delivered repeatedly, imports without keys, and
/// accounts that are closed.
const SHOP: &str = r#"
[identity]
sources = ["header:x-user", "anonymous"]
trusted = ["127.0.0.1"]

[[operation]]
name = "charge"
path = "/accounts/{account}/charges"
methods = ["POST"]
key = "required"
ttl = "7d"
retry_horizon = "3d"

[[operation]]
name = "refund"
path = "/refunds"
key_from = "header:X-Refund-Id"

[[operation]]
name = "events"
path = "/webhooks/payments"
methods = ["POST"]
key = "required"
key_from = "json:/event_id"

[[operation]]
name = "import"
path = "/imports"
key = "required"
key_from = "fingerprint"
fingerprint_exclude = ["/sent_at"]

[[operation]]
path = "/accounts/{account}"
methods = ["DELETE"]
mismatch_status = 409
"#;

fn charge(account: &str) -> TestRequest {
    TestRequest::post(&format!("/accounts/{account}/charges")).json("{\"amount\":7}")
}

fn event(body: &str) -> TestRequest {
    TestRequest::post("/webhooks/payments").json(body)
}

#[tokio::test]
async fn each_operation_of_a_file_is_under_its_own_terms() {
    let world = World::configured(SHOP, charged).await;
    let nobody = world.send(charge("7")).await;
    assert_eq!(nobody.code().as_deref(), Some("MISSING_IDEMPOTENCY_KEY"));
    let mine = || charge("7").key(KEY).with("x-user", "ada");
    assert_eq!((world.send(mine()).await.status, world.send(mine()).await.is_replay()), (201, true));
    let other = world.send(charge("7").key(KEY).with("x-user", "bob")).await;
    assert!(!other.is_replay(), "another caller's key is another key");
    assert_eq!(world.calls(), 2);

    let refund = || TestRequest::post("/refunds").with("x-refund-id", "r-1");
    assert_eq!((world.send(refund()).await.status, world.send(refund()).await.is_replay()), (201, true));
    assert_eq!(world.calls(), 3);

    let import =
        |at: u32| TestRequest::post("/imports").json(&format!("{{\"rows\":[1,2],\"sent_at\":{at}}}"));
    assert_eq!((world.send(import(1)).await.status, world.send(import(2)).await.is_replay()), (201, true));
    assert_eq!(world.calls(), 4);

    let close = || TestRequest::new("DELETE", "/accounts/7").key(KEY);
    assert_eq!((world.send(close()).await.status, world.send(close()).await.is_replay()), (201, true));
    assert_eq!(world.send(close().bytes("why")).await.status, 409, "a mismatch has the configured status");
    assert_eq!(world.calls(), 5);
}

#[tokio::test]
async fn an_event_that_is_delivered_again_happens_once() {
    let world = World::configured(SHOP, charged).await;
    let first = world.send(event(r#"{"event_id":"evt_1","type":"paid"}"#)).await;
    let again = world.send(event(r#"{ "type": "paid", "event_id": "evt_1" }"#)).await;
    assert_eq!((first.status, again.is_replay(), &again.body), (201, true, &first.body));
    let next = world.send(event(r#"{"event_id":"evt_2","type":"paid"}"#)).await;
    assert!(!next.is_replay());
    let altered = world.send(event(r#"{"event_id":"evt_1","type":"refunded"}"#)).await;
    assert_eq!(altered.code().as_deref(), Some("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"));
    let unnamed = world.send(event(r#"{"type":"paid"}"#)).await;
    assert_eq!(unnamed.code().as_deref(), Some("MISSING_IDEMPOTENCY_KEY"));
    assert_eq!(world.calls(), 2);
}

#[tokio::test]
async fn a_proxys_header_is_removed_from_other_senders() {
    let elsewhere = SHOP.replace("127.0.0.1", "10.1.2.3");
    let world = World::configured(&elsewhere, charged).await;
    for ask in [charge("7").key(KEY), TestRequest::get("/accounts/7")] {
        world.send(ask.with("x-user", "ada").with("x_user", "ada")).await;
    }
    assert_eq!(world.calls(), 2);
    for seen in world.upstream.seen() {
        assert_eq!((seen.header("x-user"), seen.header("x_user")), (None, None), "{seen:?}");
    }
    let anybody = world.send(charge("7").key(KEY)).await;
    assert!(anybody.is_replay(), "both are anonymous");
}

#[tokio::test]
async fn shadow_mode_only_logs() {
    let world =
        World::configured("[[operation]]\nname = \"pay\"\npath = \"/charges\"\nmode = \"shadow\"\n", charged)
            .await;
    for _ in 0..2 {
        assert!(!world.charge(7).await.is_replay());
    }
    world.charge(8).await;
    let found = |words: &str| world.log().lines().any(|line| line.contains(words) && line.contains("pay"));
    until(async || found("protection would have replayed the stored response").then_some(())).await;
    until(async || found("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST").then_some(())).await;
    assert_eq!(world.calls(), 3);
}

#[tokio::test]
async fn a_configured_quota_limits_new_keys_and_no_retries() {
    let world = World::configured("[quotas]\nnew_per_caller = \"2/1h\"\n", charged).await;
    let order = |number: u32, token: &str| {
        TestRequest::post("/charges")
            .key(&format!("order-number-{number:08}"))
            .with("authorization", format!("Bearer {token}"))
    };
    for number in 0..2 {
        assert_eq!(world.send(order(number, "flooder")).await.status, 201);
    }
    let refused = world.send(order(2, "flooder")).await;
    assert_eq!(refused.code().as_deref(), Some("IDEMPOTENCY_KEY_QUOTA_EXCEEDED"));
    assert!(refused.header("retry-after").is_some());
    assert!(world.send(order(0, "flooder")).await.is_replay(), "its own retries are still replayed");
    assert_eq!(world.send(order(2, "other")).await.status, 201, "other callers are still served");
}

/// The content of all store files after the gateway has exited.
async fn stored(terms: &str) -> Vec<u8> {
    let scratch = Scratch::new();
    let upstream = Upstream::start(|_| Act::Say(response("201 Created", &[], "card 4000-0012-3456"))).await;
    let key = scratch.config().with_file_name("sealing.key");
    std::fs::write(&key, "5a".repeat(32)).expect("a file");
    scratch.configure(&terms.replace("KEY_FILE", key.to_str().expect("text")));
    let config = scratch.config();
    let config = ["--config", config.to_str().expect("text")];
    let mut gateway = Gateway::start(&scratch, upstream.address, &config);
    let charge = || TestRequest::post("/charges").key(KEY);
    let first = charge().send(gateway.address).await.expect("an answer");
    assert!(first.is_acknowledged(), "{first:?}");
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let held = std::fs::read(scratch.file()).expect("the store's file");
    let gateway = Gateway::start(&scratch, upstream.address, &config);
    let again = charge().send(gateway.address).await.expect("an answer");
    assert_eq!((again.is_replay(), &again.body), (true, &first.body));
    held
}

#[tokio::test]
async fn a_sealed_response_is_unreadable_in_the_store_and_replayed() {
    let holds = |bytes: &[u8]| bytes.windows(9).any(|window| window == b"4000-0012");
    let sealing = "[[sealing.key]]\nname = \"2026-11\"\nsecret = 'file:KEY_FILE'\n";
    assert!(holds(&stored("").await), "without sealing it is readable");
    assert!(!holds(&stored(sealing).await));
}

fn semel(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_semel")).args(arguments).output().expect("semel runs")
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("text")
}

#[test]
fn the_default_file_is_printed_and_has_no_mistakes() {
    let scratch = Scratch::new();
    let printed = semel(&["config", "default"]);
    scratch.configure(text(&printed.stdout));
    let checked = semel(&[
        "config",
        "check",
        scratch.config().to_str().expect("text"),
        "--upstream",
        "http://127.0.0.1:1",
    ]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("no mistakes; 0 operations"), "{}", text(&checked.stdout));
}

#[test]
fn every_mistake_is_reported_with_its_line_and_nothing_is_served() {
    let scratch = Scratch::new();
    scratch
        .configure("[upstream]\nurl = \"http://127.0.0.1:1\"\n[defaults]\ntll = \"1h\"\nclass = \"local\"\n");
    let config = scratch.config();
    let file = config.to_str().expect("text");
    for arguments in [&["config", "check", file][..], &["serve", "--config", file]] {
        let checked = semel(arguments);
        assert_eq!(checked.status.code(), Some(1));
        let report = text(&checked.stderr);
        assert!(report.contains("semel.toml has 2 mistakes"), "{report}");
        assert!(
            report.contains(&format!("{file}:4:1: unknown key `tll` in [defaults]\n    fix: write `ttl`")),
            "{report}"
        );
        assert!(report.contains(&format!("{file}:5:9: class local is")), "{report}");
    }
}

/// The replay duration that a started gateway prints.
fn replayed_for(flags: &[&str], variables: &[(&str, &str)]) -> String {
    let mut process = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--upstream", "http://127.0.0.1:1"])
        .args(flags)
        .env("SEMEL_ADMIN", "off")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("semel starts");
    let stdout = BufReader::new(process.stdout.take().expect("it was asked for"));
    let mut lines = stdout.lines().map(|line| line.expect("text"));
    let guarantee = lines.find_map(|line| {
        let (_, rest) = line.split_once("replayed for ")?;
        Some(rest.split(',').next()?.to_owned())
    });
    process.kill().expect("the process can be killed");
    process.wait().expect("it has exited");
    guarantee.expect("the guarantee is printed")
}

#[test]
fn flags_precede_variables_then_the_file_then_defaults() {
    let scratch = Scratch::new();
    scratch.configure("[defaults]\nttl = \"3h\"\n");
    let config = scratch.config();
    let file = config.to_str().expect("text");
    let variable = ("SEMEL_TTL", "2h");
    assert_eq!(replayed_for(&[], &[]), "1d");
    assert_eq!(replayed_for(&["--config", file], &[]), "3h");
    assert_eq!(replayed_for(&[], &[("SEMEL_CONFIG", file)]), "3h");
    assert_eq!(replayed_for(&["--config", file], &[variable]), "2h");
    assert_eq!(replayed_for(&["--config", file, "--ttl", "1h"], &[variable]), "1h");
}
