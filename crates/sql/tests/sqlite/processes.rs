//! Two processes, one file.

use crate::child::{KEYS, Part, Playing, ROUNDS, command};
use crate::scratch::{Scratch, claimed, id, insert, is_done};
use semel_core::store::{Change, Count, Kind, Store as _};
use std::collections::BTreeMap;

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_create_the_same_file_at_once_all_succeed() {
    let scratch = Scratch::new("created-at-once");
    let started: Vec<_> =
        (0..6).map(|number| Playing::start(command(Part::Open, &scratch.file(), number))).collect();
    for playing in started {
        assert!(playing.ended());
    }
    let store = scratch.open();
    assert_eq!(store.count(Count::Records, 100).await.expect("read").count, 6);
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_processes_one_wins_each_command_and_every_version_once() {
    let scratch = Scratch::new("hammered");
    let mut playing: Vec<_> =
        (0..3).map(|process| Playing::start(command(Part::Hammer, &scratch.file(), process))).collect();
    let mut written: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for playing in &mut playing {
        while let Some(told) = playing.told("wrote") {
            let [number, version] = told[..] else { panic!("{told:?}") };
            written.entry(number).or_default().push(version);
        }
    }
    for playing in playing {
        assert!(playing.ended());
    }
    let store = scratch.open();
    for number in 0..KEYS {
        let mut versions = written.remove(&number).unwrap_or_default();
        versions.sort_unstable();
        let last = store.get(id(number)).await.expect("read").record().expect("a record").version();
        assert_eq!(versions, (1..=last).collect::<Vec<_>>(), "each was written by one of them, once");
        assert!(last > ROUNDS, "whoever is refused goes on from what it was told");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_is_not_let_go_of_is_unavailable_and_nothing_is_written() {
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
async fn a_write_of_another_process_is_seen_by_the_next_question() {
    let scratch = Scratch::new("seen");
    let store = scratch.open();
    for number in 0..3 {
        assert_eq!(store.get(id(number)).await.expect("read").entry, None);
        assert!(Playing::start(command(Part::Open, &scratch.file(), number)).ended());
        assert_eq!(store.get(id(number)).await.expect("read").record(), Some(&claimed(number)));
        assert!(!is_done(&insert(&store, number, &claimed(number)).await));
    }
}
