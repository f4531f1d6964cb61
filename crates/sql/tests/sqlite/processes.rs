//! Two processes, one file.

use crate::child::{ChildProcess, KEYS, Part, ROUNDS, command};
use crate::scratch::{Scratch, claimed, id, insert, is_done};
use semel_core::store::{Change, Count, Kind, Store as _};
use std::collections::BTreeMap;

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_create_the_same_file_at_once_all_succeed() {
    let scratch = Scratch::new("created-at-once");
    let started: Vec<_> =
        (0..6).map(|number| ChildProcess::start(command(Part::Open, &scratch.file(), number))).collect();
    for child in started {
        assert!(child.ended());
    }
    let store = scratch.open();
    assert_eq!(store.count(Count::Records, 100).await.expect("read").count, 6);
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_processes_wins_each_command_and_version() {
    let scratch = Scratch::new("hammered");
    let mut child: Vec<_> =
        (0..3).map(|process| ChildProcess::start(command(Part::Hammer, &scratch.file(), process))).collect();
    let mut written: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for child in &mut child {
        while let Some(numbers) = child.next_numbers("wrote") {
            let [number, version] = numbers[..] else { panic!("{numbers:?}") };
            written.entry(number).or_default().push(version);
        }
    }
    for child in child {
        assert!(child.ended());
    }
    let store = scratch.open();
    for number in 0..KEYS {
        let mut versions = written.remove(&number).unwrap_or_default();
        versions.sort_unstable();
        let last = store.get(id(number)).await.expect("read").record().expect("a record").version();
        assert_eq!(versions, (1..=last).collect::<Vec<_>>(), "each was written by one of them, once");
        assert!(last > ROUNDS, "a refused caller continues from the returned entry");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_never_released_is_unavailable() {
    let scratch = Scratch::new("locked");
    let store = scratch.open();
    let other = scratch.raw();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let error = store.write(id(1), Change::Insert(&claimed(1))).await.expect_err("not written");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert_eq!(store.get(id(1)).await.expect("readers do not wait").entry, None);
    let hazards = store.hazards().await.expect("looked at");
    assert!(hazards.iter().all(|hazard| hazard.code != "sqlite-settings-unverified"), "{hazards:?}");
    other.execute_batch("ROLLBACK").expect("let go");
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_processs_write_is_seen_by_the_next_read() {
    let scratch = Scratch::new("seen");
    let store = scratch.open();
    for number in 0..3 {
        assert_eq!(store.get(id(number)).await.expect("read").entry, None);
        assert!(ChildProcess::start(command(Part::Open, &scratch.file(), number)).ended());
        assert_eq!(store.get(id(number)).await.expect("read").record(), Some(&claimed(number)));
        assert!(!is_done(&insert(&store, number, &claimed(number)).await));
    }
}
