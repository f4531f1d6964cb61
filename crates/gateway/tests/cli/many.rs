//! Resolving many records, and watching records change.

use crate::upstream::Upstream;
use crate::world::{Scratch, World, command, key, semel, until};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

#[test]
fn many_unknown_outcomes_are_resolved_and_each_is_reported() {
    let world = World::new();
    for (round, [flag, target]) in (0..).zip(world.targets()) {
        let ids: Vec<_> = (0..3)
            .map(|number| world.post("/doubt", Some(&key(round * 10 + number)), "{}").id().to_owned())
            .collect();
        let verdict = ["--outcome", "applied", "--reason", "all are in the ledger", &flag, &target];
        let resolve = |who: &[&str]| semel(&[&["records", "resolve"], who, &verdict].concat());
        let unasked = resolve(&["--operation", "POST /doubt"]).exits(2);
        assert!(
            unasked.err.contains("add --yes") && ids.iter().all(|id| unasked.out.contains(id)),
            "{unasked:?}"
        );
        let other = resolve(&["--operation", "POST /charges", "--yes"]).exits(3);
        assert!(other.err.contains("no UNKNOWN record matches"), "{other:?}");

        let named = resolve(&[&ids[0], &ids[1][..13], "--yes", "--json"]).exits(0).json();
        assert_eq!(named["resolved"].as_array().map(Vec::len), Some(2));
        let rest = resolve(&["--operation", "POST /doubt", "--yes"]).exits(0).out;
        assert!(rest.contains(&format!("{} is SUCCEEDED", ids[2])) && !rest.contains(&ids[0]), "{rest}");
        assert!(rest.ends_with("1 record was resolved\n"), "{rest}");

        let stale = resolve(&[&ids[0], "--fence", "1"]).exits(4);
        assert!(stale.err.contains("Another attempt has begun"), "{stale:?}");
        assert!(
            resolve(&[&ids[0], &ids[1], "--fence", "1", "--yes"]).exits(2).err.contains("one operation ID")
        );
        let again = resolve(&[&ids[0], &ids[2], "--yes"]).exits(4);
        assert_eq!(again.out.matches("was not resolved").count(), 2, "{again:?}");
        assert!(again.err.contains("0 of 2 records were resolved; 2 were not"), "{again:?}");
    }
}

#[test]
fn no_more_records_are_resolved_than_the_limit() {
    let world = World::new();
    for number in 1..=3 {
        world.post("/doubt", Some(&key(number)), "{}");
    }
    let resolve = ["records", "resolve", "--outcome", "applied", "--reason", "in the ledger", "--yes"];
    let resolve = |limit: &str| {
        world.at_admin(&[&resolve[..], &["--operation", "POST /doubt", "--limit", limit]].concat()).exits(0)
    };
    let first = resolve("2");
    assert!(first.out.ends_with("2 records were resolved\n"), "{first:?}");
    assert!(first.err.contains("there are more than 2"), "{first:?}");
    let rest = resolve("2");
    assert!(rest.out.ends_with("1 record was resolved\n") && rest.err.is_empty(), "{rest:?}");
}

#[test]
fn a_gateway_that_is_asked_too_fast_is_waited_for() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let file = scratch.write("semel.toml", "[admin]\nwrites_max = \"1/1s\"\n");
    let gateway = World::gateway(&scratch, &upstream, &["--config", &file]);
    let world = World { gateway, upstream, scratch };
    for number in 1..=3 {
        world.post("/doubt", Some(&key(number)), "{}");
    }
    let resolve = ["records", "resolve", "--operation", "POST /doubt", "--outcome", "applied"];
    let resolved = world.at_admin(&[&resolve[..], &["--reason", "in the ledger", "--yes"]].concat()).exits(0);
    assert!(resolved.out.ends_with("3 records were resolved\n"), "{resolved:?}");
}

#[test]
fn records_to_resolve_must_be_named() {
    let resolve = |more: &[&str]| {
        let usual =
            ["records", "resolve", "--outcome", "applied", "--reason", "x", "--admin", "http://127.0.0.1:1"];
        semel(&[&usual, more].concat()).exits(2).err
    };
    assert!(resolve(&[]).contains("name the records"));
    assert!(resolve(&["0190c1de", "--since", "1h"]).contains("not both"));
    assert!(resolve(&["--since", "1h", "--limit", "501"]).contains("501"));
}

#[test]
fn a_list_shows_why_an_outcome_is_unknown() {
    let world = World::new();
    world.post("/doubt", Some(&key(1)), "{}");
    let table = world.at_admin(&["records", "list"]).exits(0).out;
    assert!(table.lines().next().is_some_and(|head| head.contains("REASON")), "{table}");
    let reason =
        world.at_admin(&["records", "list", "--json"]).exits(0).json()["records"][0]["doubt"]["reason"]
            .clone();
    let reason = reason.as_str().unwrap_or("the attempt could not tell");
    assert!(table.contains(reason), "{reason} is not in {table}");
}

#[test]
fn changes_are_shown_as_they_come_until_ctrl_c() {
    let world = World::new();
    for (number, [flag, target]) in (1..).zip(world.targets()) {
        let watch = ["records", "watch", "--json", "--interval", "100ms", &flag, &target];
        let mut watching =
            command(&watch).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("semel runs");
        let mut lines = BufReader::new(watching.stdout.take().expect("asked for")).lines();
        let (mut sent, mut seen) = (0, None);
        // The command shows only changes after it has started, and the test cannot know when that is.
        let (line, received) = std::sync::mpsc::channel();
        let reading = std::thread::spawn(move || {
            while let Some(Ok(text)) = lines.next() {
                if line.send(text).is_err() {
                    return;
                }
            }
        });
        until(|| {
            sent += 1;
            world.post("/charges", Some(&key(number * 10_000 + sent)), "{}");
            seen = received.try_recv().ok();
            seen.is_some()
        });
        let record: serde_json::Value = serde_json::from_str(&seen.expect("a line")).expect("a record");
        assert_eq!(record["operation"], "POST /charges");
        let pid = watching.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
        assert_eq!(watching.wait().expect("it ends").code(), Some(0));
        drop(received);
        reading.join().expect("no panic");
    }
}
