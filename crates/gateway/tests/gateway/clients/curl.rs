//! curl: its retries, bodies, protocols.

use super::world::{Language, World};
use crate::tools;
use std::path::Path;
use std::process::Command;

pub(crate) const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

/// What curl saw.
pub(crate) struct Seen {
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) is_replay: bool,
    pub(crate) body: Vec<u8>,
    /// What `--verbose` prints.
    pub(crate) stderr: String,
}

/// Runs curl with these arguments and a key; `None` where it is missing.
pub(crate) fn curl(world: &World, key: &str, arguments: &[&str]) -> Option<Seen> {
    curl_without_key(world, &[&["--header", &format!("Idempotency-Key: \"{key}\"")], arguments].concat())
}

/// The same without a key.
pub(crate) fn curl_without_key(world: &World, arguments: &[&str]) -> Option<Seen> {
    let out = world.folder.join("out");
    let _ = std::fs::remove_file(&out);
    let output = Command::new(tools::program("curl")?)
        .args(["--silent", "--show-error", "--verbose", "--max-time", "60", "--noproxy", "*"])
        .args(["--write-out", "%{http_code} %{http_version} %header{idempotency-replayed}"])
        .arg("--output")
        .arg(&out)
        .args(arguments)
        .current_dir(world.folder.path())
        .output()
        .expect("curl runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{stderr}");
    let stdout = String::from_utf8(output.stdout).expect("text");
    let mut words = stdout.split(' ');
    let mut next_word = || words.next().expect("three words");
    Some(Seen {
        status: next_word().parse().expect("a status"),
        version: next_word().to_owned(),
        is_replay: next_word() == "true",
        body: std::fs::read(&out).unwrap_or_default(),
        stderr,
    })
}

/// Every byte value, in no regular order.
fn binary(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

fn at(file: &Path) -> String {
    format!("@{}", file.display())
}

/// Up to five retries, on any error.
const RETRY: [&str; 4] = ["--retry", "5", "--retry-all-errors", "--fail"];

#[test]
fn curls_retry_of_a_lost_answer_gets_that_answer() {
    for language in [Language::InNode, Language::InPython] {
        let Some(world) = World::new(language) else { return };
        let lossy = world.lossy();
        let body = binary(100_000);
        let data = at(&world.folder.write("body", &body));
        let post = |to, more: &[&str]| {
            let url = format!("http://{to}/charges?a=1");
            curl(&world, KEY, &[&["--data-binary", &data, &url], more].concat())
        };
        let Some(retried) = post(lossy.address, &RETRY) else { return };
        assert!(lossy.has_lost(), "{}", retried.stderr);
        assert_eq!((retried.status, retried.is_replay), (201, true), "{}", retried.stderr);
        assert!(retried.body[32..] == body, "the service got what curl sent");
        let again = post(world.gateway, &[]).expect("curl runs");
        assert!(again.is_replay && again.body == retried.body, "the replay has the same bytes");
        let ledger = world.ledger();
        assert_eq!(ledger.len(), 1, "{language:?}: {ledger:?}");
        assert!(ledger[0].ends_with(" /charges?a=1 100000") && !ledger[0].starts_with("none"), "{ledger:?}");
        // Another key is another operation: the service itself never answers twice the same.
        let url = format!("http://{}/charges?a=1", world.gateway);
        let other =
            curl(&world, "another-8e03978e40d5", &["--data-binary", &data, &url]).expect("it is there");
        assert!(!other.is_replay && other.body != retried.body);
        assert_eq!(world.ledger().len(), 2);
    }
}

#[test]
fn a_large_body_that_waits_for_100_continue_is_asked_for() {
    let Some(world) = World::new(Language::InNode) else { return };
    let body = binary(5 << 20);
    let data = at(&world.folder.write("body", &body));
    let url = format!("http://{}/charges", world.gateway);
    // curl would wait for a minute, and then not send.
    let wait = ["--header", "Expect: 100-continue", "--expect100-timeout", "70"];
    let Some(sent) = curl(&world, KEY, &[&wait[..], &["--data-binary", &data, &url]].concat()) else {
        return;
    };
    assert!(sent.stderr.contains("< HTTP/1.1 100 Continue"), "{}", sent.stderr);
    assert!(sent.status == 201 && sent.body[32..] == body);
    // Node announces how long it keeps its connections, but the client's connection is to the gateway.
    assert!(!sent.stderr.to_ascii_lowercase().contains("< keep-alive:"), "{}", sent.stderr);
    let again =
        curl(&world, KEY, &[&wait[..], &["--data-binary", &data, &url]].concat()).expect("it is there");
    assert!(again.is_replay && again.body == sent.body);
    assert_eq!(world.ledger().len(), 1);
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_sent() {
    let Some(world) = World::new(Language::InNode) else { return };
    let data = at(&world.folder.write("body", vec![0; (10 << 20) + 1]));
    let url = format!("http://{}/charges", world.gateway);
    let wait = ["--header", "Expect: 100-continue", "--expect100-timeout", "70"];
    let Some(sent) = curl(&world, KEY, &[&wait[..], &["--data-binary", &data, &url]].concat()) else {
        return;
    };
    assert_eq!(sent.status, 413, "{}", sent.stderr);
    assert!(!sent.stderr.contains("100 Continue"), "{}", sent.stderr);
    assert!(world.ledger().is_empty());
}

#[test]
fn http_2_without_tls_is_retried_like_anything_else() {
    let Some(world) = World::new(Language::InNode) else { return };
    let lossy = world.lossy();
    let url = format!("http://{}/charges", lossy.address);
    let post = ["--http2-prior-knowledge", "--data", "amount=2500", &url];
    let Some(retried) = curl(&world, KEY, &[&post[..], &RETRY].concat()) else { return };
    assert!(lossy.has_lost());
    assert_eq!((retried.version.as_str(), retried.is_replay), ("2", true), "{}", retried.stderr);
    assert_eq!(world.ledger().len(), 1);
}

#[test]
fn over_tls_both_versions_of_http_share_a_key() {
    let Some(world) = World::with_tls(Language::InPython) else { return };
    let lossy = world.lossy();
    let certificate = world.certificate();
    let post = |to: std::net::SocketAddr, version: &str| {
        let url = format!("https://{to}/charges");
        let trust = ["--cacert", certificate.to_str().expect("text")];
        curl(&world, KEY, &[&trust[..], &RETRY, &[version, "--data", "amount=2500", &url]].concat())
    };
    let Some(first) = post(lossy.address, "--http2") else { return };
    assert!(lossy.has_lost());
    let second = post(world.gateway, "--http1.1").expect("curl runs");
    assert_eq!((first.version.as_str(), second.version.as_str()), ("2", "1.1"), "{}", first.stderr);
    assert!(first.is_replay && second.is_replay && first.body == second.body);
    assert_eq!(world.ledger().len(), 1);
}
