//! Numbers that do not fit into a signed column, and the counts.

use crate::scratch::{
    ManualClock, NOW, Scratch, caller, claim, claim_at, claimed, command, finished, id, insert, is_done, swap,
};
use semel_core::machine::{Command, Unchanged};
use semel_core::policy::{Policy, PolicySettings};
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Count, Filter, Store as _};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};
use std::task::Poll;
use std::time::Duration;

fn far_future(number: u64, lease: Duration) -> Record {
    let mut command = command(number);
    let distant_terms = |policy: &mut PolicySettings| {
        (policy.lease, policy.ttl, policy.denied_ttl) = (lease, 2 * lease, 2 * lease);
    };
    command.policy = Policy::clone(&command.policy).with(distant_terms).expect("fit for use").into();
    claim(&command, 7, NOW)
}

#[tokio::test(flavor = "multi_thread")]
async fn times_beyond_a_signed_integer_are_stored_and_due_correctly() {
    let scratch = Scratch::new("far");
    let clock = ManualClock::at(NOW);
    let store =
        Store::open(scratch.file(), Options::default().clock(clock.clone())).expect("the store opens");
    let half = u64::MAX / 2;
    let records = [
        far_future(1, Duration::from_millis(u64::MAX)),
        far_future(2, Duration::from_millis(half - NOW - 1)),
        far_future(3, Duration::from_millis(half + 1000)),
        claimed(4),
    ];
    assert_eq!(records[0].due_at(), Some(Time::MAX));
    for (number, record) in (1..).zip(&records) {
        assert!(is_done(&insert(&store, number, record).await));
        assert_eq!(store.get(id(number)).await.expect("read").record(), Some(record));
    }
    let due = async |millis| -> Vec<_> {
        clock.set(millis);
        let page = store.due(None, 10).await.expect("read");
        page.items
            .iter()
            .map(|item| item.record().expect("readable").due_at().expect("due").as_millis())
            .collect()
    };
    let near = NOW + 30_000;
    assert!(due(near - 1).await.is_empty());
    assert_eq!(due(near).await, [near]);
    assert_eq!(due(half - 1).await, [near, half - 1]);
    assert_eq!(due(half + 1).await, [near, half - 1], "the column only says: beyond");
    assert_eq!(due(u64::MAX).await.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_beyond_a_signed_integer_omit_nothing() {
    let scratch = Scratch::new("far-pages");
    let store = scratch.open();
    assert!(is_done(&insert(&store, 1, &claim_at(1, 1, u64::MAX - 5)).await));
    let listed = async |from, before| {
        let filter = Filter {
            updated_from: Some(Time::from_millis(from)),
            updated_before: Some(Time::from_millis(before)),
            ..Filter::default()
        };
        store.page(&filter, None, 10).await.expect("read").items.len()
    };
    assert_eq!(listed(u64::MAX - 5, u64::MAX - 4).await, 1);
    assert_eq!(listed(0, u64::MAX - 5).await, 0);
    assert_eq!(listed(u64::MAX - 4, u64::MAX).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn counts_follow_every_write_and_stop_at_the_limit() {
    let scratch = Scratch::new("counts");
    let store = scratch.open();
    let count = async |subject, at_most| store.count(subject, at_most).await.expect("read").count;
    for number in 0..10 {
        assert!(is_done(&insert(&store, number, &claimed(number)).await));
        assert!(!is_done(&insert(&store, number, &claimed(number)).await));
    }
    assert!(is_done(&store.write(id(100), Change::InsertMarker).await.expect("an answer")));
    for number in 0..4 {
        assert!(is_done(&swap(&store, number, &claimed(number), &finished(&claimed(number), "x")).await));
    }
    let gone = Unchanged::of(&claimed(9));
    assert!(is_done(&store.write(id(9), Change::Remove(gone)).await.expect("an answer")));
    // An operator, manually.
    scratch
        .raw()
        .execute("DELETE FROM semel_records WHERE command_id = ?1", [id(8).as_bytes()])
        .expect("deleted");

    assert_eq!(count(Count::Records, u64::MAX).await, 8);
    assert_eq!(count(Count::Records, 3).await, 3);
    assert_eq!(count(Count::State(StateName::Processing), 100).await, 4);
    assert_eq!(count(Count::State(StateName::Succeeded), 100).await, 4);
    assert_eq!(count(Count::State(StateName::Succeeded), 2).await, 2);
    assert_eq!(count(Count::State(StateName::Unknown), 100).await, 0);
    assert_eq!(count(Count::Markers, 100).await, 1);
    assert_eq!(count(Count::Caller(caller(0)), 100).await, 3);
    assert_eq!(count(Count::Caller(caller(0)), 2).await, 2);
    assert_eq!(count(Count::Caller(caller(9)), 100).await, 0);
    assert!(is_done(&store.write(id(100), Change::RemoveMarker).await.expect("an answer")));
    assert_eq!(count(Count::Markers, 100).await, 0);
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callers_record_removed_in_its_own_batch_leaves_no_count() {
    let scratch = Scratch::new("inserted-and-removed");
    let store = scratch.open();
    let records: Vec<_> = (0..50)
        .map(|number| claim(&Command { caller_hash: caller(1000 + number), ..command(number) }, 1, NOW))
        .collect();
    // While another process writes, everything gathers; the waiting batch separates at most one pair.
    let other = scratch.raw();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let mut writes = Vec::new();
    for (number, record) in (0..).zip(&records) {
        writes.push(store.write(id(number), Change::Insert(record)));
        writes.push(store.write(id(number), Change::Remove(Unchanged::of(record))));
    }
    for write in &mut writes {
        // Puts it into the queue.
        let polled = std::future::poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
        assert!(polled.is_pending());
    }
    other.execute_batch("COMMIT").expect("the lock is released");
    for write in writes {
        assert!(is_done(&write.await.expect("an answer")));
    }
    assert_eq!(store.count(Count::Records, 100).await.expect("read").count, 0);
    for number in 0..50 {
        let counted = store.count(Count::Caller(caller(1000 + number)), 100).await.expect("read");
        assert_eq!(counted.count, 0, "{number}");
    }
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}
