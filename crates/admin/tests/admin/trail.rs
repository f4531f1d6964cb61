//! What is logged, and what never is.

use super::world::{World, claim, token};
use semel_admin::Role;
use serde_json::json;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex};
use tracing_subscriber::fmt::MakeWriter;

/// Everything that was logged, at any level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    fn lines(&self) -> Vec<String> {
        let bytes = self.0.lock().expect("not poisoned").clone();
        String::from_utf8(bytes).expect("UTF-8").lines().map(str::to_owned).collect()
    }

    /// The number of lines that contain all of `words`.
    fn count_lines_with(&self, words: &[&str]) -> usize {
        self.lines().iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
    }
}

/// Runs this test in its own process, where it has to pass.
fn run_alone(test: &str) {
    let mut program = Command::new(std::env::current_exe().expect("this program"));
    program.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
    let output = program.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Tells this program that it runs only the test below.
const ALONE: &str = "SEMEL_TEST_TRAIL_ALONE";

#[tokio::test]
async fn every_action_is_logged_without_keys_bodies_and_tokens() {
    // It subscribes for its whole process, which must not contain other tests.
    if std::env::var_os(ALONE).is_none() {
        return run_alone("trail::every_action_is_logged_without_keys_bodies_and_tokens");
    }
    let log = Log::default();
    // A thread-local subscriber can miss lines that another thread logs first.
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false);
    let subscriber = subscriber.with_max_level(tracing::Level::TRACE).finish();
    tracing::subscriber::set_global_default(subscriber).expect("nobody else listens here");
    let roles = [Role::Read, Role::Operate, Role::Claim, Role::Bodies];
    let world = World::with(|options| options.tokens = vec![token("maria", &roles)]).await;
    let post = async |path: &str, body: &serde_json::Value| {
        world.ask("POST", path).token("maria-secret").json(body).send().await
    };
    let claimed =
        post("/v1/claims", &claim("k3y-of-the-order", &json!({ "payload": "p4yload" }))).await.json();
    let id = claimed["operationId"].as_str().expect("an id");
    let unknown = json!({ "token": claimed["token"], "outcome": "unknown" });
    assert_eq!(post(&format!("/v1/claims/{id}/outcome"), &unknown).await.status, 200);
    let response = json!({ "status": 200, "body": "b0dy", "headers": [["x-secret", "h3ader"]] });
    let applied = json!({ "outcome": "applied", "response": response, "reason": "found in the ledger" });
    assert_eq!(post(&format!("/v1/records/{id}/resolve"), &applied).await.status, 200);
    assert_eq!(
        log.count_lines_with(&[
            "semel::audit",
            "maria",
            "resolve-applied",
            id,
            "SUCCEEDED",
            "found in the ledger"
        ]),
        1
    );
    assert_eq!(
        post(&format!("/v1/records/{id}/release"), &json!({ "reason": "once more" })).await.status,
        409
    );
    assert_eq!(log.count_lines_with(&["semel::audit", "maria", "release", id, "refused"]), 1);
    let shown = world.ask("GET", &format!("/v1/records/{id}")).token("maria-secret").send().await;
    assert!(shown.text().contains("b0dy"));
    assert_eq!(log.count_lines_with(&["semel::audit", "maria", "read-body", id]), 1);
    assert_eq!(world.ask("GET", "/v1/records?key=k3y-of-the-order").token("wr0ng").send().await.status, 401);
    assert_eq!(log.count_lines_with(&["semel::audit", "wrong token", "127.0.0.1"]), 1);
    world.lose_store().await;
    assert_eq!(post("/v1/claims", &claim("k3y-of-the-order", &json!({}))).await.status, 503);
    let claim_token = claimed["token"].as_str().expect("a token");
    for secret in ["k3y-of-the-order", "p4yload", "b0dy", "h3ader", "maria-secret", "wr0ng", claim_token] {
        assert_eq!(log.count_lines_with(&[secret]), 0, "{secret} is in {:?}", log.lines());
    }
}
