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
fn an_erased_response_is_gone_from_the_store_and_its_retry_does_not_run() {
    let world = World::new();
    for (number, [flag, place]) in (1..).zip(world.places()) {
        let key = key(number);
        let charged = world.post("/charges", Some(&key), "{}");
        let calls = world.upstream.calls();
        assert!(is_in_files(&world, &charged.body), "before, it can be found");
        let erase = ["records", "erase", &charged.id()[..13], "--reason", "asked to", "--yes", &flag, &place];
        let told = semel(&erase).exits(0).out;
        assert!(
            told.starts_with(&format!("{} is SUCCEEDED: its response is erased", charged.id())),
            "{told}"
        );
        assert!(
            told.contains("archives and backups keep what they have") && !told.contains("may remain"),
            "{told}"
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
