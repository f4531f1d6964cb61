//! Erasing, at a gateway and in the store under it while it runs.

use crate::world::{World, key, semel};

fn is_in_files(world: &World, text: &str) -> bool {
    let file = world.scratch.file();
    let log = file.with_extension("db-wal");
    [file, log].into_iter().any(|file| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    })
}

#[test]
fn an_erased_response_is_gone_and_does_not_rerun() {
    let world = World::new();
    for (number, [flag, target]) in (1..).zip(world.targets()) {
        let key = key(number);
        let charged = world.post("/charges", Some(&key), "{}");
        let calls = world.upstream.calls();
        assert!(is_in_files(&world, &charged.body), "the response is in the store before the erasure");
        let erase =
            ["records", "erase", &charged.id()[..13], "--reason", "asked to", "--yes", &flag, &target];
        let output = semel(&erase).exits(0).out;
        assert!(
            output.starts_with(&format!("{} is SUCCEEDED: its response is erased", charged.id())),
            "{output}"
        );
        assert!(
            output.contains("archives and backups keep what they have") && !output.contains("may remain"),
            "{output}"
        );
        assert!(!is_in_files(&world, &charged.body), "{} is still in the store", charged.body);
        if flag == "--admin" {
            let retry = world.post("/charges", Some(&key), "{}");
            assert!(retry.status == 409 && retry.body.contains("NOT_RETAINED"), "{retry:?}");
        }
        assert_eq!(world.upstream.calls(), calls, "it ran again");
    }
}

#[test]
fn an_erased_record_answers_410_and_has_nothing_more_to_erase() {
    let world = World::new();
    let charged = world.post("/charges", Some(&key(1)), "{}");
    let erase = ["records", "erase", charged.id(), "--what", "record", "--reason", "asked to", "--yes"];
    let record = world.at_admin(&[&erase[..], &["--json"]].concat()).exits(0).json();
    assert_eq!(record["state"], "EXPIRED");
    assert_eq!(world.post("/charges", Some(&key(1)), "{}").status, 410);
    let again = world.at_admin(&erase).exits(4).err;
    assert!(again.contains("only its tombstone is left"), "{again}");
    assert_eq!(world.upstream.calls(), 1);
}

#[test]
fn unknown_records_are_not_erased_and_erasing_needs_a_confirmation() {
    let world = World::new();
    let doubted = world.post("/doubt", Some(&key(1)), "{}");
    let erase = ["records", "erase", doubted.id(), "--reason", "asked to"];
    let refused = world.at_admin(&[&erase[..], &["--yes"]].concat()).exits(4).err;
    assert!(refused.contains("Resolve it first"), "{refused}");
    let charged = world.post("/charges", Some(&key(2)), "{}");
    let erase = ["records", "erase", charged.id(), "--reason", "asked to"];
    let unasked = world.at_admin(&erase).exits(2).err;
    assert!(unasked.contains("add --yes"), "{unasked}");
    assert_eq!(world.post("/charges", Some(&key(2)), "{}").status, 201, "nothing was erased");
}

/// A gateway whose record was erased while somebody read the file, so that the bytes of the response are still there.
/// Returns the response, the arguments of the erasure, and the reader, which has ended its transaction.
fn erased_while_read(world: &World) -> (String, Vec<String>, rusqlite::Connection) {
    let charged = world.post("/charges", Some(&key(1)), "{}");
    let reader = rusqlite::Connection::open(world.scratch.file()).expect("the file opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let erase = ["records", "erase", charged.id(), "--what", "record", "--reason", "asked to", "--yes"];
    let output = world.at_admin(&erase).exits(0).out;
    assert!(output.contains("copies may remain in"), "{output}");
    (charged.body.clone(), erase.map(str::to_owned).to_vec(), reader)
}

#[test]
fn an_erasure_that_was_killed_is_completed_at_the_next_start() {
    let mut world = World::new();
    let (response, _, reader) = erased_while_read(&world);
    world.gateway.kill();
    reader.execute_batch("COMMIT").expect("it ends");
    assert!(is_in_files(&world, &response), "the killed gateway left the response");
    world.gateway = World::gateway(&world.scratch, &world.upstream, &[]);
    assert!(!is_in_files(&world, &response), "{response} is still in the store");
    assert_eq!(world.post("/charges", Some(&key(1)), "{}").status, 410);
    assert_eq!(world.upstream.calls(), 1, "it ran again");
}

#[test]
fn a_repeated_erasure_removes_the_bytes_although_it_is_refused() {
    let world = World::new();
    let (response, erase, reader) = erased_while_read(&world);
    assert!(is_in_files(&world, &response), "somebody reads");
    reader.execute_batch("COMMIT").expect("it ends");
    let erase: Vec<_> = erase.iter().map(String::as_str).collect();
    let again = world.at_admin(&erase).exits(4).err;
    assert!(again.contains("only its tombstone is left"), "{again}");
    assert!(!is_in_files(&world, &response), "{response} is still in the store");
}
