//! A worker in another language, killed in the middle of its work.

use super::world::World;
use semel_test_support::ScratchDir;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A running worker, killed when the test ends.
struct Worker {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Worker {
    fn start(world: &World, provider: &Path, class: &str, how: &str) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/admin/worker.py");
        let base = format!("http://{}", world.address);
        let mut command = Command::new("python3");
        command.arg(script).arg(base).arg(provider).args([class, how]).env_remove("http_proxy");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, stdout }
    }

    /// The next line that the worker prints; empty after it has exited.
    async fn next_line(mut self) -> (Self, String) {
        let reading = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            self.stdout.read_line(&mut line).expect("a line");
            (self, line.trim_end().to_owned())
        });
        reading.await.expect("no panic")
    }

    /// Everything that the worker prints before it exits.
    async fn remaining_lines(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line;
            (self, line) = self.next_line().await;
            if line.is_empty() {
                return lines;
            }
            lines.push(line);
        }
    }

    /// Kills the worker with a signal that it cannot handle.
    fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it is gone");
    }
}

/// Starts a worker and kills it after it has charged. Returns the operation ID.
async fn killed_after_charging(world: &World, provider: &Path, class: &str) -> String {
    let worker = Worker::start(world, provider, class, "stall");
    let (worker, claimed) = worker.next_line().await;
    let id = claimed.strip_prefix("claimed ").and_then(|rest| rest.strip_suffix(" 1")).expect("attempt 1");
    let id = id.to_owned();
    let (worker, charged) = worker.next_line().await;
    assert_eq!(charged, "charged");
    worker.kill();
    id
}

fn ledger(provider: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(provider.join("ledger")).expect("a ledger");
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn a_killed_external_attempt_is_unknown_and_never_repeated() {
    let (world, provider) = (World::new().await, ScratchDir::new("provider"));
    let id = killed_after_charging(&world, provider.path(), "external").await;
    let twin = Worker::start(&world, provider.path(), "external", "go").remaining_lines().await;
    assert_eq!(twin, ["refused 409 IDEMPOTENCY_REQUEST_IN_PROGRESS"]);
    world.pass(Duration::from_secs(6));
    for _ in 0..3 {
        let restarted = Worker::start(&world, provider.path(), "external", "go").remaining_lines().await;
        assert_eq!(restarted, ["refused 409 IDEMPOTENCY_OUTCOME_UNKNOWN"]);
    }
    assert_eq!(ledger(provider.path()), [id.as_str()], "charged once");
    // The operator checks the ledger and resolves the outcome; every later worker gets the result.
    let response = json!({ "status": 201, "body": "paid" });
    let applied = json!({ "outcome": "applied", "response": response, "reason": "it is in the ledger" });
    assert_eq!(world.post(&format!("/v1/records/{id}/resolve"), &applied).await.status, 200);
    let lines = Worker::start(&world, provider.path(), "external", "go").remaining_lines().await;
    assert_eq!(lines, ["replayed SUCCEEDED paid"]);
    assert_eq!(ledger(provider.path()), [id], "charged once");
}

#[tokio::test]
async fn a_killed_downstream_attempt_is_taken_over_with_the_same_id() {
    let (world, provider) = (World::new().await, ScratchDir::new("provider"));
    let id = killed_after_charging(&world, provider.path(), "downstream").await;
    world.pass(Duration::from_secs(6));
    let restarted = Worker::start(&world, provider.path(), "downstream", "go").remaining_lines().await;
    let expected =
        [&format!("claimed {id} 2"), &format!("deduplicated {id}"), "charged", "ended 200 SUCCEEDED"];
    assert_eq!(restarted, expected);
    let lines = Worker::start(&world, provider.path(), "downstream", "go").remaining_lines().await;
    assert_eq!(lines, ["replayed SUCCEEDED paid"]);
    let charges = std::fs::read_dir(provider.path()).expect("a folder").count();
    assert_eq!(charges, 1, "charged once");
}

#[tokio::test]
async fn the_gateway_may_be_restarted_while_a_worker_works() {
    let (world, provider) = (World::new().await, ScratchDir::new("provider"));
    let _ = killed_after_charging(&world, provider.path(), "downstream").await;
    let world = world.restarted().await;
    world.pass(Duration::from_secs(6));
    let restarted = Worker::start(&world, provider.path(), "downstream", "go").remaining_lines().await;
    assert_eq!(restarted.last().map(String::as_str), Some("ended 200 SUCCEEDED"));
}
