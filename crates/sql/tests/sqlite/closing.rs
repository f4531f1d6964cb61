//! How a store is closed, and the answers of waiting callers.

use crate::scratch::{Scratch, claimed, id, insert, is_done};
use semel_core::store::{Change, Clock, Kind, Pending, Store as _};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

#[tokio::test(flavor = "multi_thread")]
async fn closing_answers_all_requests_and_leaves_one_file() {
    let scratch = Scratch::new("closing");
    let store = Arc::new(scratch.open());
    let waiting: Vec<_> = (0..200)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.write(id(number), Change::Insert(&claimed(number))).await })
        })
        .collect();
    tokio::task::yield_now().await;
    store.close().await;
    let mut done = Vec::new();
    for (number, answer) in (0..).zip(waiting) {
        match answer.await.expect("no panic") {
            Ok(written) if is_done(&written) => done.push(number),
            Ok(other) => panic!("nothing was stored: {other:?}"),
            // It arrived after the store was closed.
            Err(error) => assert_eq!(error.kind(), Kind::Closed),
        }
    }
    let left: Vec<_> = std::fs::read_dir(scratch.directory())
        .expect("listed")
        .map(|entry| entry.expect("read").file_name())
        .collect();
    assert_eq!(left, ["semel.db"]);
    assert_eq!(store.get(id(0)).await.map_err(|error| error.kind()), Err(Kind::Closed));
    let late = store.write(id(0), Change::Insert(&claimed(0))).await;
    assert_eq!(late.map_err(|error| error.kind()), Err(Kind::Closed));

    let store = scratch.open();
    for number in 0..200 {
        let stands = store.get(id(number)).await.expect("read").entry.is_some();
        assert_eq!(stands, done.contains(&number), "{number}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn dropping_the_store_ends_its_threads_in_any_runtime() {
    let scratch = Scratch::new("dropping");
    let store = scratch.open();
    let record = claimed(1);
    // Accepted, but its caller is gone: written or not, but never partially.
    enqueue(&mut store.write(id(1), Change::Insert(&record))).await;
    drop(store);
    let store = scratch.open();
    let reading = store.get(id(1)).await.expect("read");
    assert!(reading.entry.is_none() || reading.record() == Some(&claimed(1)), "{reading:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_write_is_dropped_unless_it_has_begun() {
    let scratch = Scratch::new("gone");
    let store = scratch.open();
    let records: Vec<_> = (0..50).map(claimed).collect();
    // While another process writes, everything gathers behind the waiting batch.
    let other = scratch.raw();
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free");
    let mut first = store.write(id(0), Change::Insert(&records[0]));
    enqueue(&mut first).await;
    for (number, record) in (1..).zip(&records[1..49]) {
        enqueue(&mut store.write(id(number), Change::Insert(record))).await;
    }
    let mut last = store.write(id(49), Change::Insert(&records[49]));
    enqueue(&mut last).await;
    other.execute_batch("COMMIT").expect("the lock is released");
    assert!(is_done(&first.await.expect("an answer")));
    assert!(is_done(&last.await.expect("an answer")));
    let mut stand = 0;
    for number in 1..49 {
        stand += u32::from(store.get(id(number)).await.expect("read").entry.is_some());
    }
    // One may have been seen between its two steps: queued, and abandoned.
    assert!(stand <= 1, "{stand} of the abandoned ones");
}

/// Makes the store accept a write.
async fn enqueue<T>(write: &mut Pending<'_, T>) {
    let polled = std::future::poll_fn(|context| Poll::Ready(write.as_mut().poll(context))).await;
    drop(polled);
}

/// A clock that panics on request: the only foreign code in the writer's thread.
struct Breakable(AtomicBool);

impl Clock for Breakable {
    fn now(&self) -> Time {
        assert!(!self.0.load(Ordering::SeqCst), "the clock is broken");
        Time::from_millis(1)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_writer_leaves_no_request_waiting() {
    let scratch = Scratch::new("panic");
    let clock = Arc::new(Breakable(AtomicBool::new(false)));
    let store = Arc::new(
        Store::open(scratch.file(), Options::default().clock(clock.clone())).expect("the store opens"),
    );
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
    clock.0.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (2..50)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.write(id(number), Change::Insert(&claimed(number))).await })
        })
        .collect();
    for answer in waiting {
        let kind = answer.await.expect("no panic here").expect_err("not written").kind();
        assert!(matches!(kind, Kind::Ambiguous | Kind::Unavailable), "{kind}");
    }
    let read = store.get(id(1)).await.map_err(|error| error.kind());
    assert_eq!(read, Err(Kind::Unavailable), "the reader's clock is broken too");
    clock.0.store(false, Ordering::SeqCst);
    let later = store.write(id(60), Change::Insert(&claimed(60))).await;
    assert_eq!(later.map_err(|error| error.kind()), Err(Kind::Unavailable), "the writer has ended");
    assert_eq!(store.get(id(1)).await.expect("readers continue").record(), Some(&claimed(1)));
    assert_eq!(store.get(id(2)).await.expect("readers continue").entry, None);
    store.close().await;
}
