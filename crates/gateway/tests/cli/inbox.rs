//! `semel inbox stats`, at a gateway, in a store, and where there is no inbox.

use crate::world::{RunResult, Scratch, World, semel, until};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// Three messages of one group, one of them processed nine days ago, and one message of another group.
fn mark(scratch: &Scratch) {
    let file = rusqlite::Connection::open(scratch.file()).expect("it opens");
    let now = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)";
    let sql = format!(
        "INSERT INTO semel_inbox_marks VALUES ('billing', 'payments', 'a', x'00', {now}), \
         ('billing', 'payments', 'b', x'00', {now}), ('billing', 'payments', 'c', x'00', {now} - 9 * 86400000), \
         ('mail', 'payments', 'a', x'00', {now})"
    );
    file.execute_batch(&sql).expect("marked");
}

fn assert_counted(ran: &RunResult, overdue: u64) {
    let counted = ran.json();
    assert_eq!(counted["inboxes"].as_array().map(Vec::len), Some(2), "{counted}");
    let billing = &counted["inboxes"][0];
    assert_eq!((&billing["group"], &billing["topic"]), (&"billing".into(), &"payments".into()));
    assert_eq!((&billing["marks"], &billing["overdue"]), (&3.into(), &overdue.into()));
    assert_eq!(
        (&counted["inboxes"][1]["group"], &counted["inboxes"][1]["marks"]),
        (&"mail".into(), &1.into())
    );
}

#[test]
fn marks_are_counted_at_a_gateway_and_in_its_store() {
    let world = World::new();
    assert_eq!(world.in_store(&["inbox", "stats"]).exits(0).out, "no message is marked as processed\n");
    mark(&world.scratch);
    for target in world.targets() {
        let target = [target[0].as_str(), target[1].as_str()];
        let ask = |more: &[&str]| semel(&[&["inbox", "stats"], &target[..], more].concat()).exits(0);
        assert_counted(&ask(&["--json"]), 1);
        assert_counted(&ask(&["--json", "--window", "30d"]), 0);
        let table = ask(&[]).out;
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["GROUP", "TOPIC", "MARKS", "OLDEST", "NEWEST", "OVERDUE"], "{table}");
        assert_eq!(
            (rows[1][0], rows[1][2], rows[1][3], rows[1].last()),
            ("billing", "3", "9d", Some(&"1")),
            "{table}"
        );
        assert!(table.contains("1 marks are older than 7d"), "{table}");
    }
}

#[test]
fn a_window_has_the_limits_of_the_admin_address() {
    let world = World::new();
    for target in world.targets() {
        let ask = |window: &str| semel(&["inbox", "stats", "--window", window, &target[0], &target[1]]);
        for window in ["0s", "36500d"] {
            ask(window).exits(0);
        }
        for (window, why) in [("36501d", "at most 3153600000 seconds"), ("500ms", "whole seconds")] {
            let refused = ask(window).exits(2);
            assert!(refused.err.contains(why), "{refused:?}");
        }
    }
}

#[test]
fn a_store_without_inboxes_is_an_error() {
    for store in ["memory:", "redis://127.0.0.1:1"] {
        let refused = semel(&["inbox", "stats", "--store", store]).exits(1);
        assert!(refused.err.contains("has no inboxes") && refused.out.is_empty(), "{refused:?}");
    }
    let scratch = Scratch::new();
    semel(&["inbox", "stats", "--store", &scratch.store()]).exits(1);
    assert!(!scratch.file().exists(), "reading creates nothing");
    let foreign = rusqlite::Connection::open(scratch.file()).expect("a file");
    foreign.execute_batch("CREATE TABLE payments (id)").expect("a table");
    let refused = semel(&["inbox", "stats", "--store", &scratch.store()]).exits(1);
    assert!(refused.err.contains("semel schema apply"), "{refused:?}");
    let upstream = crate::upstream::Upstream::start();
    let (upstream, flags) =
        (format!("http://{}", upstream.address), ["--admin", "127.0.0.1:0", "--store", "memory:"]);
    let gateway = crate::world::Gateway::start(&[&flags[..], &["--upstream", &upstream]].concat());
    let admin = format!("http://{}", gateway.admin.expect("it has an admin address"));
    let refused = semel(&["inbox", "stats", "--admin", &admin]).exits(1);
    assert!(refused.err.contains("NO_INBOXES"), "{refused:?}");
}

#[test]
fn a_gateway_shows_the_marks_of_its_store_as_metrics() {
    let scratch = Scratch::new();
    semel(&["schema", "apply", "--store", &scratch.store()]).exits(0);
    mark(&scratch);
    let upstream = crate::upstream::Upstream::start();
    let gateway = World::gateway(&scratch, &upstream, &[]);
    let admin = gateway.admin.expect("it has an admin address");
    until(|| metrics(admin).contains("idempotency_inbox_counted_timestamp_seconds "));
    let text = metrics(admin);
    for line in [
        "idempotency_inbox_marks{group=\"billing\",topic=\"payments\"} 3\n",
        "idempotency_inbox_marks{group=\"mail\",topic=\"payments\"} 1\n",
        "idempotency_inbox_overdue{group=\"billing\",topic=\"payments\"} 1\n",
        "idempotency_inbox_overdue{group=\"mail\",topic=\"payments\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let moment = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).expect("it is there");
        line.rsplit(' ').next().and_then(|number| number.split('.').next()?.parse().ok()).expect("a number")
    };
    let counted = moment("idempotency_inbox_counted_timestamp_seconds");
    let oldest = moment("idempotency_inbox_oldest_timestamp_seconds{group=\"billing\"");
    let newest = moment("idempotency_inbox_newest_timestamp_seconds{group=\"billing\"");
    assert!(counted - oldest >= 9 * 86_400 && counted - newest < 86_400, "{text}");
}

fn metrics(admin: SocketAddr) -> String {
    let mut stream = TcpStream::connect(admin).expect("it listens");
    let head = format!("GET /metrics HTTP/1.1\r\nhost: {admin}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}
