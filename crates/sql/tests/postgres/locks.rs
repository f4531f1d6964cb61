//! Rows that another session has locked.

use crate::server::{Schema, connect};
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Kind, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_testkit::records::{claimed, id, is_done, renewed};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const OTHERS: u64 = 64;

/// An open transaction on one record delays writes to that record, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_row_delays_only_writes_to_it() {
    let schema = Schema::new();
    let store =
        Arc::new(Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens"));
    let locked = claimed(0);
    assert!(is_done(&store.write(id(0), Change::Insert(&locked)).await.expect("an answer")));
    let other_session = connect().await;
    other_session
        .batch_execute(&format!("BEGIN; SELECT 1 FROM {}.records FOR UPDATE", schema.name))
        .await
        .expect("locked");

    let next = renewed(&locked);
    let write = |store: Arc<Store>| {
        let (locked, next) = (locked.clone(), next.clone());
        tokio::spawn(async move { store.write(id(0), Change::Replace(Unchanged::of(&locked), &next)).await })
    };
    let waiting = write(Arc::clone(&store));
    let mut others = JoinSet::new();
    for number in 1..=OTHERS {
        let store = Arc::clone(&store);
        others.spawn(async move { store.write(id(number), Change::Insert(&claimed(number))).await });
    }
    while let Some(written) = others.join_next().await {
        assert!(is_done(&written.expect("no panic").expect("an answer")));
    }
    assert!(!waiting.is_finished(), "the others were answered while the lock was waited for");
    // It is certain that nothing was written.
    let refused = timeout(Duration::from_secs(30), waiting).await.expect("a bounded wait").expect("no panic");
    assert_eq!(refused.map_err(|error| error.kind()).err(), Some(Kind::Unavailable));

    let waiting = write(Arc::clone(&store));
    tokio::time::sleep(Duration::from_millis(200)).await;
    other_session.batch_execute("COMMIT").await.expect("unlocked");
    let written = timeout(Duration::from_secs(30), waiting).await.expect("a bounded wait").expect("no panic");
    assert!(is_done(&written.expect("an answer")), "it is written as soon as the lock is released");
}

/// Many records are locked at once: each caller learns the reason in time, and that it is not the store.
#[tokio::test(flavor = "multi_thread")]
async fn many_locked_rows_are_reported_as_locked_within_seconds() {
    let schema = Schema::new();
    let store =
        Arc::new(Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens"));
    for number in 0..OTHERS {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    let other_session = connect().await;
    let lock = format!("BEGIN; SELECT 1 FROM {}.records FOR UPDATE", schema.name);
    other_session.batch_execute(&lock).await.expect("locked");
    let mut waiting = JoinSet::new();
    for number in 0..OTHERS {
        let store = Arc::clone(&store);
        waiting.spawn(async move {
            let claim = claimed(number);
            store.write(id(number), Change::Replace(Unchanged::of(&claim), &renewed(&claim))).await
        });
    }
    let results = timeout(Duration::from_secs(9), waiting.join_all()).await;
    for written in results.expect("within the time that the engine gives a store") {
        let refused = written.expect_err("locked");
        assert!(refused.is_entry_locked() && !refused.is_ambiguous(), "{refused}");
        let text = refused.to_string();
        assert!(
            text.contains("somebody else has locked the entry") && text.contains("pg_blocking_pids"),
            "{text}"
        );
    }
    other_session.batch_execute("COMMIT").await.expect("unlocked");
    let claim = claimed(3);
    let written = store.write(id(3), Change::Replace(Unchanged::of(&claim), &renewed(&claim))).await;
    assert!(is_done(&written.expect("an answer")));
}
