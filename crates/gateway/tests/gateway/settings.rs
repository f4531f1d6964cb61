//! Settings of the whole process, and mistakes in them.

use crate::secure::Authority;
use crate::world::{Gateway, KEY, Scratch, World, does_not_start, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Upstream, charged, response};
use std::process::Command;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test]
async fn moved_published_paths_leave_the_usual_ones_to_the_service() {
    let world = World::configured("[published]\nprefix = \"/pay\"\n", charged).await;
    let specification = world.send(TestRequest::get("/pay/.well-known/idempotency")).await;
    assert_eq!((specification.status, world.calls()), (200, 0));
    assert!(specification.text().contains("/pay/operations/"), "{}", specification.text());
    let first = world.charge(7).await;
    let id = first.header("operation-id").expect("an id").to_owned();
    let status = world.send(TestRequest::get(&format!("/pay/operations/{id}"))).await;
    assert_eq!((status.status, status.json()["state"].as_str()), (200, Some("SUCCEEDED")));
    assert_eq!(
        world.send(TestRequest::get("/.well-known/idempotency")).await.text(),
        "charge 2",
        "the path belongs to the service"
    );
    assert_eq!(world.send(TestRequest::get(&format!("/operations/{id}"))).await.text(), "charge 3");
}

#[tokio::test]
async fn a_problems_type_follows_the_published_prefix() {
    let terms = "[published]\nprefix = \"/pay\"\n[defaults.authorize]\npath = \"/session\"\n";
    // No connection is left on which the service could still be reached.
    let closing = |_: &_| Act::SayAndEnd(response("201 Created", &[("connection", "close")], "charged"));
    let mut world = World::configured(terms, closing).await;
    assert_eq!(world.charge(7).await.status, 201);
    world.upstream.refuse().await;
    let unprotected = TestRequest::new("DELETE", "/charges/1");
    let (unkeyed, unasked) = (world.send(unprotected).await, world.charge(7).await);
    for (reply, status) in [(unkeyed, 502), (unasked, 503)] {
        world.is_problem(&reply, status, "UPSTREAM_UNREACHABLE", true).await;
        let problem = reply.json();
        let type_uri = problem["type"].as_str().expect("a type");
        assert!(type_uri.starts_with("/pay/.well-known/idempotency"), "{type_uri}");
    }
}

#[tokio::test]
async fn earlier_hops_are_passed_on_only_from_trusted_proxies() {
    let ask = || {
        TestRequest::post("/charges").with("x-forwarded-for", "192.0.2.7").with("x-forwarded-proto", "https")
    };
    for (terms, expected) in [
        ("", ("127.0.0.1", "http")),
        ("forwarded_by = [\"127.0.0.0/8\"]\n", ("192.0.2.7, 127.0.0.1", "https")),
        ("forwarded_by = [\"10.1.2.3\"]\n", ("127.0.0.1", "http")),
    ] {
        let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
        scratch.configure(&format!("[upstream]\n{terms}"));
        let config = scratch.config();
        let flags = ["--config", config.to_str().expect("text")];
        let gateway = Gateway::start(&scratch, upstream.address, &flags);
        ask().send(gateway.address).await.expect("an answer");
        let seen = &upstream.seen()[0];
        let received = (seen.header("x-forwarded-for"), seen.header("x-forwarded-proto"));
        assert_eq!(received, (Some(expected.0), Some(expected.1)), "{terms}");
    }
}

/// A connection on which everything but the last byte of a body has been sent.
async fn unfinished(world: &World, bytes: usize) -> TcpStream {
    let request = TestRequest::post("/charges").key("a-slow-order-00000001").bytes(vec![b'x'; bytes]).raw();
    let mut slow = TcpStream::connect(world.gateway.address).await.expect("a connection");
    slow.write_all(&request[..request.len() - 1]).await.expect("sent");
    slow
}

#[tokio::test]
async fn a_body_without_room_is_refused_and_not_forwarded() {
    let terms = "[defaults]\nrequest_max = \"4KiB\"\n[limits]\nbodies_max = \"4KiB\"\n";
    let world = World::configured(terms, charged).await;
    let slow = unfinished(&world, 4096).await;
    let order = |number: u32| {
        TestRequest::post("/charges").key(&format!("a-quick-order-{number:08}")).bytes(vec![b'y'; 4096])
    };
    let mut number = 0;
    // Until the slow request has taken all the room, others succeed.
    let refused = until(async || {
        number += 1;
        (world.send(order(number)).await.status == 503).then_some(number)
    })
    .await;
    let key = format!("a-quick-order-{refused:08}");
    assert!(world.upstream.seen().iter().all(|seen| seen.header("idempotency-key") != Some(&key)));
    drop(slow);
    until(async || (world.send(order(refused)).await.status == 201).then_some(())).await;
}

#[tokio::test]
async fn a_body_has_a_time_limit() {
    // Not because of the listener's timeout for the next byte.
    let terms = "[listen]\nbody_timeout = \"10m\"\n[limits]\nbody_time_max = \"200ms\"\n";
    let world = World::configured(terms, charged).await;
    let mut slow = unfinished(&world, 64).await;
    let mut answer = [0; 12];
    within(slow.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!((str::from_utf8(&answer), world.calls()), (Ok("HTTP/1.1 408"), 0));
    assert_eq!(world.charge(7).await.status, 201);
}

#[tokio::test]
async fn a_record_is_written_to_the_archive_before_it_is_gone() {
    let scratch = Scratch::new();
    let archive = scratch.config().with_file_name("archive.jsonl");
    let terms = format!(
        "[defaults]\nlease = \"100ms\"\nttl = \"200ms\"\n[clock]\nsettle = \"0s\"\n[sweep]\nevery = \"50ms\"\narchive = '{}'\n",
        archive.display()
    );
    let world = World::configured_in(scratch, &terms, charged).await;
    let first = world.charge(7).await;
    let id = first.header("operation-id").expect("an id");
    let line = until(async || {
        let text = std::fs::read_to_string(&archive).ok()?;
        text.lines().next().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
    })
    .await;
    assert_eq!(line["operation_id"].as_str(), Some(id), "{line}");
    // No other process may write there in the meantime.
    let other = Scratch::new();
    other.configure(&format!("[sweep]\narchive = '{}'\n", archive.display()));
    let config = other.config();
    let errors = does_not_start(&[
        "--config",
        config.to_str().expect("text"),
        "--store",
        "memory:",
        "--upstream",
        "http://127.0.0.1:1",
    ]);
    assert!(errors.contains("another process is writing to it"), "{errors}");
}

#[tokio::test]
async fn a_store_that_is_down_is_bypassed_only_if_configured() {
    // Longer than the store waits for the lock, even if a heartbeat waits before the request: a request may only bypass
    // a store that has reported that it wrote nothing.
    let terms = "timeout = \"50s\"\nrequest_timeout = \"50s\"\n[[operation]]\npath = \"/logs\"\nstore_down = \"pass\"\n";
    let world = World::configured(terms, charged).await;
    let lock = rusqlite::Connection::open(world.scratch.file()).expect("the same file");
    lock.execute_batch("BEGIN IMMEDIATE").expect("another transaction");
    let passed = world.send(TestRequest::post("/logs").key(KEY)).await;
    assert_eq!((passed.status, passed.text(), passed.is_acknowledged()), (201, "charge 1", false));
    assert_eq!(world.charge(7).await.code().as_deref(), Some("IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert_eq!(world.calls(), 1);
    lock.execute_batch("ROLLBACK").expect("a rollback");
    assert!(world.log().contains("without protection"), "{}", world.log());
}

#[tokio::test]
async fn a_store_that_another_process_locks_is_refused_soon() {
    let world = World::new(&[], charged).await;
    assert!(world.charge(7).await.is_acknowledged());
    let lock = rusqlite::Connection::open(world.scratch.file()).expect("the same file");
    lock.execute_batch("BEGIN IMMEDIATE").expect("another transaction");
    let refusals = async {
        for number in 0..3 {
            let refused =
                world.send(TestRequest::post("/charges").key(&format!("{KEY}-{number}")).json("{}")).await;
            world.is_problem(&refused, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", true).await;
        }
    };
    // One second each; it used to be five to thirty.
    tokio::time::timeout(std::time::Duration::from_secs(10), refusals).await.expect("three quick refusals");
    assert!(world.charge(7).await.is_replay(), "stored outcomes can be read");
    assert_eq!(world.calls(), 1);
    lock.execute_batch("ROLLBACK").expect("a rollback");
    let again = TestRequest::post("/charges").key(&format!("{KEY}-0")).json("{}");
    until(async || world.send(again.clone()).await.is_acknowledged().then_some(())).await;
    assert_eq!(world.calls(), 2, "the refused request ran once");
}

#[tokio::test]
async fn tls_is_set_up_by_the_file_alone() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    let ours = Authority::new("ours");
    let server = ours.server();
    let [certificate, key] = [("cert.pem", &server.pem), ("key.pem", &server.key_pem)]
        .map(|(name, text)| scratch.write(name, text).display().to_string());
    scratch.configure(&format!("[listen]\ntls_cert = '{certificate}'\ntls_key = '{key}'\n"));
    let config = scratch.config();
    let gateway = Gateway::start(&scratch, upstream.address, &["--config", config.to_str().expect("text")]);
    for is_replay in [false, true] {
        let reply = ours
            .send(TestRequest::post("/charges").key(KEY), gateway.address, None)
            .await
            .expect("an answer");
        assert_eq!((reply.status, reply.is_replay()), (201, is_replay));
    }
    assert_eq!(upstream.seen()[0].header("x-forwarded-proto"), Some("https"));
    assert!(Authority::new("others").send(TestRequest::get("/"), gateway.address, None).await.is_err());
}

#[tokio::test]
async fn a_memory_stores_danger_is_printed_once() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    let mut gateway = Gateway::start_on("memory:", &scratch, upstream.address, &["--admin", "off"]);
    gateway.terminate();
    assert!(gateway.ended().await.success());
    let output = gateway.rest_of_output();
    assert_eq!(output.matches("danger: ").count(), 1, "{output}");
    assert!(output.contains("(memory-only)\n    fix: "), "{output}");
    assert!(!output.lines().any(|line| line.trim().starts_with("admin")), "off: {output}");
}

/// The output and exit code of `semel config check` for a file.
fn checked(text: &str) -> (Option<i32>, String) {
    let scratch = Scratch::new();
    scratch.configure(text);
    let file = scratch.config();
    let output = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["config", "check", file.to_str().expect("text")])
        .env_remove("SEMEL_NOWHERE")
        .output()
        .expect("semel runs");
    let output = (output.status.code(), String::from_utf8(output.stderr).expect("text"));
    (output.0, output.1.replace(file.to_str().expect("text"), "semel.toml"))
}

#[test]
fn each_mistake_is_reported_with_line_reason_and_fix() {
    for (text, line, reason, remedy) in [
        ("[defaults]\ntll = \"1h\"\n", "2:1", "unknown key `tll` in [defaults]", "write `ttl`"),
        (
            "[[operation]]\npath = \"/charges\"\nttl = \"1h\"\nretry_horizon = \"12h\"\n",
            "3:1",
            "the ttl of 1h is shorter than the retry_horizon",
            "make ttl 12h or longer",
        ),
        (
            "[[operation]]\npath = \"/{*all}\"\n[[operation]]\npath = \"/charges\"\n",
            "4:8",
            "POST and PATCH /charges never matches this operation",
            "put this operation before the other",
        ),
        (
            "[[sealing.key]]\nname = \"k\"\nsecret = \"env:SEMEL_NOWHERE\"\n",
            "3:10",
            "the environment variable SEMEL_NOWHERE, named by `secret`, is not set",
            "set SEMEL_NOWHERE for the process",
        ),
        (
            "[identity]\nsources = [\"header:x-user\"]\n",
            "2:1",
            "`x-user` identifies callers, but no address is trusted",
            "Name the addresses of the proxy",
        ),
        (
            "[identity]\nsources = [\"mtls\"]\n",
            "2:1",
            "the listener asks for none",
            "write `client_ca` under [listen]",
        ),
        (
            "[admin]\naddress = \"0.0.0.0:9090\"\n",
            "2:1",
            "can be reached from other machines, and no token is configured",
            "make a token with `semel key token`",
        ),
    ] {
        let (code, report) = checked(text);
        assert_eq!(code, Some(1), "{report}");
        assert!(report.contains("semel.toml has a mistake\n"), "{report}");
        assert!(report.contains(&format!("semel.toml:{line}: ")) && report.contains(reason), "{report}");
        let (_, fix) = report.split_once("\n    fix: ").expect("a fix");
        assert!(fix.starts_with(remedy), "{report}");
    }
}
