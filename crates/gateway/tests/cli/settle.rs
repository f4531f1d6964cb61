//! Resolving and releasing, at a gateway and in its store while it runs.

use crate::world::{World, command_line_user, key, semel};
use serde_json::Value;

/// Who wrote the last history entry, and why.
fn last(record: &Value) -> (&str, &str) {
    let entry = record["history"].as_array().and_then(|history| history.last()).expect("a history");
    (entry["who"].as_str().expect("a caller"), entry["why"].as_str().expect("a reason"))
}

#[test]
fn an_outcome_resolved_as_applied_is_replayed() {
    let world = World::new();
    let body = world.scratch.write("body.bin", b"\xff\x00charged");
    let document = world
        .scratch
        .write("response.json", r#"{"status": 202, "headers": [["x-a", "1"]], "body": "by hand"}"#);
    for (number, [flag, target]) in (1..).zip(world.targets()) {
        let target = [flag.as_str(), target.as_str()];
        let resolve = |id: &str, more: &[&str]| {
            let arguments =
                ["records", "resolve", id, "--outcome", "applied", "--reason", "it is in the ledger"];
            // Storing a response needs the sealing keys, or an explicit `--unsealed`.
            let unsealed: &[&str] = if flag == "--store" && !more.is_empty() { &["--unsealed"] } else { &[] };
            semel(&[&arguments, &target[..], more, unsealed].concat())
        };
        let who = if flag == "--admin" { "loopback".to_owned() } else { command_line_user() };
        let who = who.as_str();

        let parts = key(10 + number);
        let id = world.post("/doubt", Some(&parts), "{}");
        let parts_given = [
            "--status",
            "201",
            "--header",
            "Location: /charges/7",
            "--header",
            "Link: <a>",
            "--header",
            "Link: <b>",
            "--body",
            &body,
        ];
        let ran = resolve(id.id(), &parts_given).exits(0);
        assert_eq!(ran.out, format!("{} is SUCCEEDED: every retry gets the response\n", id.id()));
        let raw = crate::world::send(world.gateway.address, "/doubt", Some(&parts), "{}");
        let response = read(raw);
        assert!(
            response.starts_with(b"HTTP/1.1 201 ") && response.ends_with(b"\xff\x00charged"),
            "{response:?}"
        );
        let response = String::from_utf8_lossy(&response).to_ascii_lowercase();
        for part in
            ["location: /charges/7\r\n", "link: <a>\r\n", "link: <b>\r\n", "idempotency-replayed: true\r\n"]
        {
            assert!(response.contains(part), "{part} is not in {response}");
        }

        let second_key = key(20 + number);
        let id = world.post("/doubt", Some(&second_key), "{}");
        let record = resolve(id.id(), &["--response", &document, "--json"]).exits(0).json();
        assert_eq!(
            (record["state"].as_str(), last(&record)),
            (Some("SUCCEEDED"), (who, "resolved as applied: it is in the ledger"))
        );
        let replay = world.post("/doubt", Some(&second_key), "{}");
        assert_eq!((replay.status, replay.body.as_str(), replay.header("x-a")), (202, "by hand", Some("1")));

        let without = key(30 + number);
        let id = world.post("/doubt", Some(&without), "{}");
        resolve(id.id(), &[]).exits(0);
        let replay = world.post("/doubt", Some(&without), "{}");
        assert!(replay.status == 409 && replay.body.contains("NOT_RETAINED"), "{replay:?}");
        resolve(id.id(), &[]).exits(4);
    }
    assert_eq!(world.upstream.calls(), 6, "nothing ran twice");
}

fn read(mut stream: std::net::TcpStream) -> Vec<u8> {
    let mut response = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut response).expect("an answer");
    response
}

#[test]
fn not_applied_runs_again_and_failed_does_not() {
    let world = World::new();
    for (number, [flag, target]) in (1..).zip(world.targets()) {
        let target = [flag.as_str(), target.as_str()];
        let before = world.upstream.calls();
        let (again, refused) = (key(10 + number), key(20 + number));
        let id = world.post("/doubt", Some(&again), "{}");
        let resolve = ["records", "resolve", id.id(), "--outcome", "not-applied", "--reason", "never seen"];
        let ran = semel(&[&resolve, &target[..]].concat()).exits(0);
        assert!(ran.out.contains("is FAILED_NOT_REPLAYABLE: the next request"), "{ran:?}");
        assert_eq!(world.post("/doubt", Some(&again), "{}").id(), id.id());
        assert_eq!(world.upstream.calls(), before + 2);

        let id = world.post("/doubt", Some(&refused), "{}");
        let resolve =
            ["records", "resolve", id.id(), "--outcome", "failed", "--reason", "declined", "--status", "402"];
        let unsealed: &[&str] = if flag == "--store" { &["--unsealed"] } else { &[] };
        semel(&[&resolve, &target[..], unsealed].concat()).exits(0);
        assert_eq!(world.post("/doubt", Some(&refused), "{}").status, 402);
        assert_eq!(world.upstream.calls(), before + 3);
    }
}

#[test]
fn a_released_key_takes_another_payload() {
    let world = World::new();
    for (number, [flag, target]) in (1..).zip(world.targets()) {
        let key = key(number);
        let id = world.post("/busy", Some(&key), "{\"amount\":1}");
        assert_eq!(id.status, 429);
        assert_eq!(world.post("/busy", Some(&key), "{\"amount\":2}").status, 422);
        let release = ["records", "release", id.id(), "--reason", "wrong amount", "--json", &flag, &target];
        let record = semel(&release).exits(0).json();
        let who = if flag == "--admin" { "loopback".to_owned() } else { command_line_user() };
        let who = who.as_str();
        assert_eq!(last(&record), (who, "released: wrong amount"));
        let next = world.post("/busy", Some(&key), "{\"amount\":2}");
        assert_eq!((next.status, next.id()), (429, id.id()));
    }
}

#[test]
fn a_silent_owner_may_still_act_for_a_stated_time() {
    let mut world = World::with(&["--lease", "4s"]);
    let key = key(1);
    let hanging = crate::world::send(world.gateway.address, "/hang", Some(&key), "{}");
    world.upstream.hanging(1);
    let listed = world.in_store(&["records", "list", "--json"]).exits(0).json();
    let id = listed["records"][0]["operationId"].as_str().expect("an id").to_owned();
    let resolve = ["records", "resolve", &id, "--reason", "not in the ledger", "--outcome"];
    let alive = world.at_admin(&[&resolve[..], &["not-applied"]].concat()).exits(4);
    assert!(alive.err.contains("lease is not over") && alive.err.contains("Ask again in"), "{alive:?}");
    world.gateway.kill();
    drop(hanging);
    // No sweeper runs: the store alone decides when the lease has expired.
    crate::world::until(|| {
        let record = world.in_store(&["records", "show", &id, "--json"]).exits(0).json();
        record["canResolve"] == true
    });
    let silent = world.in_store(&[&resolve[..], &["not-applied"]].concat()).exits(4);
    assert!(silent.err.contains("may still act") && silent.err.contains("Ask again in"), "{silent:?}");
    world.in_store(&[&resolve[..], &["applied"]].concat()).exits(0);
}
