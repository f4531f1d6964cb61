//! The configuration file: what it promises, what is told about it, and what outranks it.

use crate::client::Ask;
use crate::upstream::charged;
use crate::world::{KEY, Scratch, World};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Output, Stdio};

/// A shop: payments, refunds by an id of their own, events that are delivered again and again, imports that nobody gives keys
/// to, and accounts that are closed.
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

fn charge(account: &str) -> Ask {
    Ask::post(&format!("/accounts/{account}/charges")).json("{\"amount\":7}")
}

fn event(body: &str) -> Ask {
    Ask::post("/webhooks/payments").json(body)
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

    let refund = || Ask::post("/refunds").with("x-refund-id", "r-1");
    assert_eq!((world.send(refund()).await.status, world.send(refund()).await.is_replay()), (201, true));
    assert_eq!(world.calls(), 3);

    let import = |at: u32| Ask::post("/imports").json(&format!("{{\"rows\":[1,2],\"sent_at\":{at}}}"));
    assert_eq!((world.send(import(1)).await.status, world.send(import(2)).await.is_replay()), (201, true));
    assert_eq!(world.calls(), 4);

    let close = || Ask::new("DELETE", "/accounts/7").key(KEY);
    assert_eq!((world.send(close()).await.status, world.send(close()).await.is_replay()), (201, true));
    assert_eq!(world.send(close().bytes("why")).await.status, 409, "a mismatch, as the file has it");
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
    let checked = semel(&["config", "check", scratch.config().to_str().expect("text")]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("no mistakes; 0 operations"), "{}", text(&checked.stdout));
}

#[test]
fn every_mistake_is_told_with_its_line_and_nothing_is_served() {
    let scratch = Scratch::new();
    scratch
        .configure("[upstream]\nurl = \"http://127.0.0.1:1\"\n[defaults]\ntll = \"1h\"\nclass = \"local\"\n");
    let config = scratch.config();
    let file = config.to_str().expect("text");
    for arguments in [&["config", "check", file][..], &["serve", "--config", file]] {
        let checked = semel(arguments);
        assert_eq!(checked.status.code(), Some(1));
        let told = text(&checked.stderr);
        assert!(told.contains("semel.toml has 2 mistakes"), "{told}");
        assert!(
            told.contains(&format!("{file}:4:1: `tll` is no key of [defaults]\n    mend: write `ttl`")),
            "{told}"
        );
        assert!(told.contains(&format!("{file}:5:9: class local is")), "{told}");
    }
}

/// What a started gateway says of how long outcomes are replayed.
fn replayed_for(flags: &[&str], variables: &[(&str, &str)]) -> String {
    let mut process = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:", "--upstream", "http://127.0.0.1:1"])
        .args(flags)
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("semel starts");
    let said = BufReader::new(process.stdout.take().expect("it was asked for"));
    let mut lines = said.lines().map(|line| line.expect("text"));
    let told = lines.find_map(|line| {
        let (_, rest) = line.split_once("replayed for ")?;
        Some(rest.split(',').next()?.to_owned())
    });
    process.kill().expect("it is ours to kill");
    process.wait().expect("it is dead");
    told.expect("it tells its guarantee")
}

#[test]
fn a_flag_outranks_its_variable_that_outranks_the_file_and_that_the_default() {
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
