//! Responses that operators enter: what is stored of them, and what is refused.

use crate::upstream::Upstream;
use crate::world::{Scratch, World, key, semel};

/// A gateway that stores responses up to 1 KiB, and its configuration file.
fn small_world(more: &str) -> (World, String) {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let text =
        format!("[upstream]\nurl = \"http://{}\"\n[defaults]\nkept_max = \"1KiB\"\n{more}", upstream.address);
    let config = scratch.write("semel.toml", text);
    let gateway = World::gateway(&scratch, &upstream, &["--config", &config]);
    (World { gateway, upstream, scratch }, config)
}

/// The table of a sealing key, in a file of its own.
fn sealing(scratch: &Scratch, name: &str) -> String {
    sealing_with(scratch, name, "5e")
}

fn sealing_with(scratch: &Scratch, name: &str, byte: &str) -> String {
    let file = scratch.write(&format!("{name}-{byte}"), byte.repeat(32));
    format!("[[sealing.key]]\nname = \"{name}\"\nsecret = 'file:{file}'\n")
}

#[test]
fn a_response_that_no_client_could_read_is_refused() {
    let (world, config) = small_world("");
    let id = world.post("/doubt", Some(&key(1)), "{}");
    let write = |name: &str, text: String| world.scratch.write(name, text);
    let long =
        write("long.json", format!(r#"{{"status": 200, "headers": [["x", "{}"]]}}"#, "v".repeat(2 << 20)));
    let pairs = vec![r#"["x", "1"]"#; 24_000].join(",");
    let many = write("many.json", format!(r#"{{"status": 200, "headers": [{pairs}]}}"#));
    let body = write("body", "b".repeat(1_025));
    for [flag, target] in world.targets() {
        let configured: &[&str] = if flag == "--store" { &["--config", &config] } else { &[] };
        for (given, why) in [
            (&["--response", &long][..], "at most 65536"),
            (&["--response", &many], "24000 headers; at most 256"),
            (&["--status", "200", "--body", &body], "has 1025 bytes; at most 1024"),
            (&["--status", "200", "--header", "Set-Cookie: s=1"], "not be replayed"),
            (&["--status", "204", "--body", &body[..]], "1024"),
        ] {
            let line = ["records", "resolve", id.id(), "--outcome", "applied", "--reason", "in the ledger"];
            let refused = semel(&[&line, given, &[&flag, &target], configured].concat()).exits(2);
            assert!(refused.err.contains(why), "{given:?}: {refused:?}");
            assert!(refused.err.contains("INVALID_REQUEST"), "{refused:?}");
        }
    }
    let short = write("short", "gone".to_owned());
    let line = ["records", "resolve", id.id(), "--outcome", "applied", "--reason", "in the ledger"];
    let bodiless = world.at_admin(&[&line[..], &["--status", "204", "--body", &short]].concat()).exits(2);
    assert!(bodiless.err.contains("204 has no body"), "{bodiless:?}");
    assert_eq!(world.at_admin(&["records", "show", id.id(), "--json"]).exits(0).json()["state"], "UNKNOWN");
    world.at_admin(&[&line[..], &["--status", "200", "--body", &short]].concat()).exits(0);
    assert_eq!(world.post("/doubt", Some(&key(1)), "{}").body, "gone");
}

#[test]
fn many_records_are_refused_like_one() {
    let (world, _) = small_world("");
    let ids: Vec<_> = (1..3).map(|number| world.post("/doubt", Some(&key(number)), "{}")).collect();
    let line =
        ["records", "resolve", ids[0].id(), ids[1].id(), "--outcome", "applied", "--reason", "r", "--yes"];
    let refused =
        world.at_admin(&[&line[..], &["--status", "200", "--header", "Set-Cookie: a=b"]].concat()).exits(2);
    assert!(refused.out.contains("not be replayed"), "{refused:?}");
}

#[test]
fn no_response_is_stored_unsealed_beside_sealed_ones() {
    let scratch = Scratch::new();
    let (world, config) = small_world(&sealing(&scratch, "first"));
    assert_eq!(world.post("/charges", Some(&key(1)), "{}").status, 201);
    let id = world.post("/doubt", Some(&key(2)), "{}");
    let other = world.scratch.write("other.toml", "[upstream]\nurl = \"http://127.0.0.1:3000\"\n");
    let line = ["records", "resolve", id.id(), "--outcome", "applied", "--reason", "in the ledger"];
    let body = world.scratch.write("body", "s3cret");
    let resolve =
        |more: &[&str]| world.in_store(&[&line[..], &["--status", "200", "--body", &body], more].concat());
    let refused = resolve(&["--config", &other]).exits(2);
    assert!(
        refused.err.contains("contains sealed responses") && refused.err.contains("no key under [sealing]"),
        "{refused:?}"
    );
    let refused = resolve(&["--unsealed"]).exits(2);
    assert!(
        refused.err.contains("contains sealed responses") && refused.err.contains("--config"),
        "{refused:?}"
    );
    let text = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n".to_owned();
    let foreign = world.scratch.write("foreign.toml", text + &sealing_with(&scratch, "first", "77"));
    let refused = resolve(&["--config", &foreign]).exits(2);
    assert!(refused.err.contains("none of the sealed responses in the store can be opened"), "{refused:?}");
    assert_eq!(world.at_admin(&["records", "show", id.id(), "--json"]).exits(0).json()["state"], "UNKNOWN");
    // Without a response, there is nothing to seal; with the right file, it is sealed.
    resolve(&["--config", &config]).exits(0);
    assert_eq!(world.post("/doubt", Some(&key(2)), "{}").body, "s3cret");
    let show = ["records", "show", id.id(), "--body"];
    let unopened = world.in_store(&show).exits(1);
    assert!(unopened.err.contains("give --config FILE"), "{unopened:?}");
    assert!(unopened.err.contains("body-not-opened") && !unopened.err.contains("read-body"), "{unopened:?}");
    let unopened = world.in_store(&[&show[..], &["--config", &other]].concat()).exits(1);
    assert!(
        unopened.err.contains("file given with --config opens it") && !unopened.err.contains("give --config"),
        "{unopened:?}"
    );
    let opened = world.in_store(&[&show[..], &["--config", &config]].concat()).exits(0);
    assert!(opened.err.contains("read-body") && opened.out.contains("s3cret"), "{opened:?}");
}

#[test]
fn a_fence_that_no_attempt_has_is_reported_as_such() {
    let world = World::new();
    let id = world.post("/doubt", Some(&key(1)), "{}");
    let shown = world.at_admin(&["records", "show", id.id(), "--json"]).exits(0).json();
    let fence = shown["fence"].as_u64().expect("a fence");
    let resolve = |fence: u64| {
        let fence = fence.to_string();
        world.at_admin(&[
            "records",
            "resolve",
            id.id(),
            "--outcome",
            "applied",
            "--reason",
            "r",
            "--fence",
            &fence,
        ])
    };
    let higher = resolve(fence + 1).exits(4);
    assert!(
        higher.err.contains(&format!("the fence {}: its latest one has {fence}", fence + 1)),
        "{higher:?}"
    );
    let lower = resolve(fence - 1).exits(4);
    assert!(lower.err.contains("Another attempt has begun"), "{lower:?}");
    resolve(fence).exits(0);
}
