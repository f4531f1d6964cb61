//! Moved markers decide races like records, and are counted and listed separately.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    HOUR, START, TestCommand, assert_stored, bring, command, finish, first, insert, is_done, paid, read,
    refused, token,
};
use crate::walk;
use semel_core::machine::{Found, Unchanged};
use semel_core::record::{Entry, StateName};
use semel_core::store::{Change, Count, Filter, Store, Written};
use std::sync::Arc;

async fn plant(store: &dyn Store, command: &TestCommand) {
    let written = store.write(command.id, Change::InsertMarker).await.expect("an answer");
    assert!(is_done(&written), "there is no entry, yet the marker was refused: {written:?}");
}

async fn refused_by_marker(store: &dyn Store, command: &TestCommand, written: Written) {
    let Written::Refused(shown) = written else { panic!("a marker was overwritten or removed") };
    assert_eq!(shown.found(), Found::Moved, "a refusal shows the stored entry");
    assert_eq!(read(store, command).await.entry, Some(Ok(Entry::Moved)));
}

/// If there is a marker, claims, second markers, swaps and removals are refused.
pub async fn a_marker_is_not_overwritten(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command(1);
    plant(store, &command).await;
    let record = first(&command, token(1), START);
    let write = finish(&record, paid(), START);
    refused_by_marker(
        store,
        &command,
        store.write(command.id, Change::Insert(&record)).await.expect("an answer"),
    )
    .await;
    for change in [Change::InsertMarker, Change::from(&write), Change::Remove(Unchanged::of(&record))] {
        let written = store.write(command.id, change).await.expect("an answer");
        refused_by_marker(store, &command, written).await;
    }
}

/// A marker is refused if there is a record, in any state.
pub async fn a_marker_is_refused_by_a_record(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    for (n, state) in (0..).zip(StateName::ALL) {
        let stored = bring(store, state, &command(n), token(n), START).await;
        let written = store.write(command(n).id, Change::InsertMarker).await.expect("an answer");
        refused(store, &command(n), written, &stored).await;
    }
}

/// Removing a marker removes only a marker: a record stays, and without an entry it is refused.
pub async fn only_a_marker_is_removed_as_one(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    plant(store, &command(1)).await;
    let removed = store.write(command(1).id, Change::RemoveMarker).await.expect("an answer");
    assert!(is_done(&removed), "{removed:?}");
    assert_eq!(read(store, &command(1)).await.entry, None);
    let again = store.write(command(1).id, Change::RemoveMarker).await.expect("an answer");
    assert!(matches!(&again, Written::Refused(shown) if shown.entry.is_none()), "{again:?}");
    for (n, state) in (10..).zip(StateName::ALL) {
        let stored = bring(store, state, &command(n), token(n), START).await;
        let written = store.write(command(n).id, Change::RemoveMarker).await.expect("an answer");
        refused(store, &command(n), written, &stored).await;
    }
}

/// Markers are listed and counted as markers, each once, and appear nowhere else.
pub async fn markers_are_listed_apart_from_records(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let record = first(&command(100), token(1), START);
    insert(store, &command(100), &record).await;
    let mut planted: Vec<_> = (0..25).map(|n| command(n).id).collect();
    for n in 0..25 {
        plant(store, &command(n)).await;
    }
    planted.sort_unstable();
    for limit in [1, 10, 25, 100] {
        let markers = walk::markers(store, limit).await;
        assert!(markers.iter().all(|item| item.entry == Ok(Entry::Moved)), "{markers:?}");
        let mut listed: Vec<_> = markers.iter().map(|item| item.id).collect();
        listed.sort_unstable();
        assert_eq!(listed, planted, "in pages of {limit}");
    }
    let count = async |what| store.count(what, 1_000).await.expect("an answer").count;
    assert_eq!((count(Count::Markers).await, count(Count::Records).await), (25, 1));
    subject.set_time(START + 10_000 * HOUR).await;
    for items in [walk::page(store, &Filter::default(), 10).await, walk::due(store, 10).await] {
        assert_eq!(items.iter().map(|item| item.id).collect::<Vec<_>>(), [command(100).id]);
    }
    assert_eq!(store.find(command(3).operation_id).await.expect("an answer").1, None);
}

/// If a claim and a marker race, exactly one is stored.
pub async fn of_a_claim_and_a_marker_one_wins(subject: Subject) {
    subject.set_time(START).await;
    let handles = subject.two_handles().await;
    for round in 0..20 {
        let race = |n: u64| {
            let store = Arc::clone(&handles[usize::from(n % 4 < 2)]);
            async move {
                let record = first(&command(round), token(round * 100 + n), START);
                let change = if n.is_multiple_of(2) { Change::InsertMarker } else { Change::Insert(&record) };
                is_done(&store.write(command(round).id, change).await.expect("an answer"))
            }
        };
        let won = at_once((0..8).map(race)).await;
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "how many were stored under one ID");
        let winner = won.iter().position(|won| *won).expect("one won") as u64;
        if winner.is_multiple_of(2) {
            assert_eq!(read(&*handles[0], &command(round)).await.found(), Found::Moved);
        } else {
            assert_stored(
                &*handles[0],
                &command(round),
                &first(&command(round), token(round * 100 + winner), START),
            )
            .await;
        }
    }
}
