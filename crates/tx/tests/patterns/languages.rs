//! The documented SQL, as Python and Node use it: `examples/patterns`.

use crate::world::{Lite, Pg, World, effects, process, url, with_effects};
use semel_test_support::services::leave_out;
use semel_tx::patterns::{Inbox, InboxResult, Message, MessageId, PatternError};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MESSAGES: u32 = 240;
const ROUNDS: u32 = 6;

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/patterns").join(name)
}

/// The program that the variable names, or the one that `cargo xtask tools` installs.
fn provided(variable: &str, usual: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder");
    std::env::var_os(variable).map_or_else(|| target.join("services").join(usual), PathBuf::from)
}

/// Whether a program has what it needs; otherwise the test is skipped, and says so.
fn ready(mut check: Command, label: &str) -> bool {
    let is_ready = check.output().is_ok_and(|output| output.status.success());
    if !is_ready {
        leave_out(&format!("{label} is missing; `cargo xtask tools` provides it"));
    }
    is_ready
}

/// Plain Python: the consumer needs only the standard library.
fn python() -> Option<Command> {
    let mut check = Command::new("python3");
    check.args(["-c", "import sqlite3"]);
    ready(check, "Python with sqlite3").then(|| Command::new("python3"))
}

fn fence_in_python() -> Option<Command> {
    let program = provided("SEMEL_TEST_PYTHON", "python/bin/python");
    let mut check = Command::new(&program);
    check.args(["-c", "import psycopg"]);
    let mut command = Command::new(program);
    command.arg(example("fence.py"));
    ready(check, "Python with psycopg").then_some(command)
}

fn fence_in_node() -> Option<Command> {
    let modules = provided("SEMEL_TEST_NODE_MODULES", "node/node_modules");
    let mut check = Command::new("node");
    check.args(["-e", "require('pg')"]).env("NODE_PATH", &modules);
    let mut command = Command::new("node");
    command.arg(example("fence.mjs")).env("NODE_PATH", modules);
    ready(check, "Node with pg").then_some(command)
}

/// Two consumers get every message in every round, and are killed in the middle; the last round runs to the
/// end.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_in_python_survives_being_killed() {
    if python().is_none() {
        return;
    }
    let world: Lite = with_effects().await;
    world.sql("CREATE TABLE totals (value bigint)").await;
    world.sql("INSERT INTO totals VALUES (0)").await;
    for round in 0..=ROUNDS {
        let consumers = [0, 1].map(|_| consume(&world.path(), round < ROUNDS));
        if round < ROUNDS {
            // At a different point each time.
            let processed_min = usize::try_from(round * 30 + 5).expect("few");
            while consumers[0].1.lock().expect("not poisoned").len() < processed_min {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let mut acknowledged = BTreeSet::new();
        for (mut process, lines) in consumers {
            if round < ROUNDS {
                process.kill().expect("it runs");
            }
            let ended = process.wait().expect("it ends");
            assert_eq!(ended.success(), round == ROUNDS);
            acknowledged.extend(lines.lock().expect("not poisoned").clone());
        }
        let twice = world.ask("SELECT count(*) - count(DISTINCT name) FROM {t:effects}").await;
        let half = "SELECT (SELECT count(*) FROM {o:inbox_marks}) - (SELECT count(*) FROM {t:effects})";
        assert_eq!((twice, world.ask(half).await), (0, 0), "round {round}");
        for id in acknowledged {
            let found = world.ask(&format!("SELECT count(*) FROM {{t:effects}} WHERE name = '{id}'")).await;
            assert_eq!(found, 1, "round {round}: acknowledged {id}");
        }
    }
    let total: u32 = (0..MESSAGES).sum();
    assert_eq!(effects(&world).await, i64::from(MESSAGES));
    assert_eq!(world.ask("SELECT value FROM totals").await, i64::from(total));
}

/// Each recognises what the other has processed, also if the producer has serialised it again.
#[tokio::test(flavor = "multi_thread")]
async fn consumers_in_python_and_rust_share_a_group() {
    if python().is_none() {
        return;
    }
    let world: Lite = with_effects().await;
    world.sql("CREATE TABLE totals (value bigint)").await;
    let python = |lines: &[&str]| {
        let mut process = python()
            .expect("it was there before")
            .arg(example("inbox.py"))
            .arg(world.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process starts");
        let mut input = process.stdin.take().expect("asked for");
        lines.iter().try_for_each(|line| writeln!(input, "{line}")).expect("it reads");
        drop(input);
        let output = process.wait_with_output().expect("it ends");
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let rust = async |id: &str, body: &str| {
        let id = MessageId::new(id).expect("an id");
        let message = Message::json("payments", id, body).expect("a message");
        process(&world, &Inbox::new("python"), &message).await
    };
    let first =
        [r#"{"id": "p-1", "amount": 5.50, "to": "café"}"#, r#"{"id": "p-2", "amount": 9007199254740993}"#];
    assert_eq!(python(&first), "acknowledged p-1 .\nacknowledged p-2 .\n");
    for (id, body) in [
        ("p-1", r#"{"to":"caf\u00e9","amount":55e-1,"id":"p-1"}"#),
        ("p-2", r#"{"amount":9007199254740993.0,"id":"p-2"}"#),
    ] {
        assert_eq!(rust(id, body).await.ok(), Some(InboxResult::Duplicate), "{body}");
    }
    let other = rust("p-2", r#"{"id":"p-2","amount":9007199254740992}"#).await;
    assert!(matches!(other, Err(PatternError::Mismatch(_))), "{other:?}");
    let new = rust("r-1", r#"{"id":"r-1","amount":7,"tags":["a",{"b":null}]}"#).await;
    assert_eq!(new.ok(), Some(InboxResult::Processed(())));
    let again = r#"{ "tags": ["a", {"b": null}], "amount": 7.0, "id": "r-1" }"#;
    assert_eq!(python(&[again]), "acknowledged r-1 .\n");
    assert_eq!(python(&[r#"{"id": "r-1", "amount": 8}"#]), "mismatch r-1 .\n");
    assert_eq!(effects(&world).await, 3);
}

type Lines = Arc<Mutex<Vec<String>>>;

/// A consumer that gets every message; one that `is_killed` gets them again and again, so that it cannot end before.
fn consume(file: &Path, is_killed: bool) -> (std::process::Child, Lines) {
    let mut process = python()
        .expect("it was there before")
        .arg(example("inbox.py"))
        .arg(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process starts");
    let mut input = process.stdin.take().expect("asked for");
    let mut send_all =
        move || (0..MESSAGES).try_for_each(|n| writeln!(input, r#"{{"id": "m-{n}", "amount": {n}}}"#));
    // A killed consumer reads nothing more.
    std::thread::spawn(move || while send_all().is_ok() && is_killed {});
    let lines = Lines::default();
    let (reading, output) = (Arc::clone(&lines), BufReader::new(process.stdout.take().expect("asked for")));
    std::thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if let Some(id) = line.strip_prefix("acknowledged ").and_then(|line| line.strip_suffix(" .")) {
                reading.lock().expect("not poisoned").push(id.to_owned());
            }
        }
    });
    (process, lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_in_python_answers_like_the_one_in_rust() {
    if fence_in_python().is_some() {
        holds(fence_in_python).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_in_node_answers_like_the_one_in_rust() {
    if fence_in_node().is_some() {
        holds(fence_in_node).await;
    }
}

async fn holds(program: fn() -> Option<Command>) {
    let world: Pg = with_effects().await;
    let now = world.ask("SELECT {o:now_ms}()").await;
    let attempt = |operation: &str, fence: i64| {
        let mut command = program().expect("it was there before");
        command.args([&url(), &world.schema, operation, &fence.to_string()]);
        let output = command.output().expect("a process starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let operation = "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35";
    let first = format!("charged by {now}");
    assert_eq!(attempt(operation, now), first);
    assert_eq!(attempt(operation, now + 1), first, "a newer attempt of what is done");
    assert_eq!(attempt(operation, now - 1), first, "an older one");
    assert_eq!(effects(&world).await, 1);
    // A newer attempt has begun and is not done.
    let other = "1e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35";
    let begun =
        format!("INSERT INTO {{o:operation_fences}} VALUES ('{other}', {}, FALSE, NULL, {now})", now + 5);
    world.sql(&begun).await;
    assert_eq!(attempt(other, now), "Idempotency-Outcome: unknown");
    let old = now - 33 * 86_400_000;
    assert_eq!(attempt("2e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35", old), "Idempotency-Outcome: unknown");
    assert_eq!(effects(&world).await, 1);
    assert_eq!(world.ask("SELECT count(*) FROM {o:operation_fences}").await, 2);
}
