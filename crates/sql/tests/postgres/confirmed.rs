//! Reads of a write that the standby may not have.

use crate::records::{claimed, id};
use semel_core::id::OperationId;
use semel_core::store::{Change, Kind, Store as _, Written};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use std::sync::Arc;
use std::time::Duration;

/// The server waits for a missing standby; cancelling the wait makes a write visible that the standby does
/// not have.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_write_is_hidden_until_the_standby_has_it() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "sync-standby");
    let server = PostgresServer::start(folder.join("server"));
    let store =
        Store::open(&format!("{}?timeout=1", server.url()), Options::default()).await.expect("it opens");
    let store = Arc::new(store);
    let waits_for = |names: &str| {
        server.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'"));
        server.sql("SELECT pg_reload_conf()");
    };
    let (first, second, third) = (claimed(1), claimed(2), claimed(3));
    waits_for("nobody");
    let writing = tokio::spawn({
        let (store, first) = (Arc::clone(&store), first.clone());
        async move { store.write(id(1), Change::Insert(&first)).await }
    });
    let waiting = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
    while server.sql(&format!("SELECT count(*) {waiting}")).trim() == "0" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.sql(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
    let lost = writing.await.expect("no panic").expect_err("the result is unknown");
    assert_eq!(lost.kind(), Kind::Ambiguous);
    assert_eq!(server.sql("SELECT count(*) FROM semel.records").trim(), "1", "the server shows it to all");
    let read = store.get(id(1)).await;
    assert_eq!(read.map_err(|error| error.kind()), Err(Kind::Unavailable));
    let found = store.find(OperationId::of(&id(1))).await;
    assert_eq!(found.map_err(|error| error.kind()), Err(Kind::Unavailable));
    let again =
        store.write(id(1), Change::Insert(&first)).await.expect_err("what refuses it is not confirmed");
    assert_eq!(again.kind(), Kind::Ambiguous);
    // A caller that did not wait for the answer does not know it either.
    let impatient =
        tokio::time::timeout(Duration::from_millis(300), store.write(id(3), Change::Insert(&third))).await;
    assert!(impatient.is_err(), "the server waits: {impatient:?}");
    // Before any caller knows the result.
    assert_eq!(store.get(id(3)).await.map_err(|error| error.kind()), Err(Kind::Unavailable));
    waits_for("");
    let read = until(async || store.get(id(1)).await.ok()).await;
    assert_eq!(read.record(), Some(&first));
    let refused = store.write(id(1), Change::Insert(&first)).await.expect("an answer");
    assert!(matches!(refused, Written::Refused(reading) if reading.record() == Some(&first)));
    let other = store.write(id(2), Change::Insert(&second)).await.expect("an answer");
    assert!(matches!(other, Written::Done { .. }));
    store.close().await;
}

async fn until<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..200 {
        if let Some(value) = attempt().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen in time");
}
