//! Reads of a write that the standby may not have.

use crate::server::Schema;
use semel_core::id::OperationId;
use semel_core::store::{Change, Error, Kind, Store as _, Written};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::faults::Gate;
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request};
use semel_testkit::records::{claimed, id, is_done};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;

/// The server waits for a missing standby; cancelling the wait makes a write visible that the standby does
/// not have.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreplicated_write_is_hidden_until_the_standby_has_it() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "sync-standby");
    let server = PostgresServer::start(folder.join("server"));
    let store =
        Store::open(&format!("{}?timeout=1", server.url()), Options::default()).await.expect("it opens");
    let store = Arc::new(store);
    let (first, second, third) = (claimed(1), claimed(2), claimed(3));
    server.wait_for_missing_standby();
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
    assert_eq!(
        server.sql("SELECT count(*) FROM semel.records WHERE version IS NOT NULL").trim(),
        "1",
        "the server shows it to all"
    );
    let read = store.get(id(1)).await;
    assert_eq!(read.map_err(|error| error.kind()), Err(Kind::Unavailable));
    let found = store.find(OperationId::of(&id(1))).await;
    assert_eq!(found.map_err(|error| error.kind()), Err(Kind::Unavailable));
    let again =
        store.write(id(1), Change::Insert(&first)).await.expect_err("what refuses it is not confirmed");
    assert_eq!(again.kind(), Kind::Ambiguous);
    // A caller that did not wait for the answer does not know it either.
    let begun = server.sql("SELECT clock_timestamp()");
    let sent = format!("SELECT count(*) {waiting} AND xact_start > '{begun}'");
    let is_sent = async {
        while server.sql(&sent) == "0" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        written = store.write(id(3), Change::Insert(&third)) => assert_eq!(
            written.map_err(|error| error.kind()),
            Err(Kind::Ambiguous),
            "the server waits"
        ),
        () = is_sent => {}
    }
    // Before any caller knows the result.
    assert_eq!(store.get(id(3)).await.map_err(|error| error.kind()), Err(Kind::Unavailable));
    server.wait_for_no_standby();
    let read = until(async || store.get(id(1)).await.ok()).await;
    assert_eq!(read.record(), Some(&first));
    let refused = store.write(id(1), Change::Insert(&first)).await.expect("an answer");
    assert!(matches!(refused, Written::Refused(reading) if reading.record() == Some(&first)));
    let other = store.write(id(2), Change::Insert(&second)).await.expect("an answer");
    assert!(matches!(other, Written::Done { .. }));
    store.close().await;
}

/// Cancelling the wait makes the server acknowledge the commit, with a warning that this role would not get.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_wait_is_noticed_where_warnings_are_hidden() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "hidden-warnings");
    let server = PostgresServer::start(folder.join("server"));
    server.sql("ALTER ROLE ALL SET client_min_messages = 'error'");
    let url = format!("{}?timeout=20&listen=off", server.url());
    let store = Arc::new(Store::open(&url, Options::default()).await.expect("it opens"));
    server.wait_for_missing_standby();
    let ended_wait = async |writing: tokio::task::JoinHandle<Result<(), Error>>| {
        let cancel =
            "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        let mut cancelled = 0;
        while !writing.is_finished() {
            cancelled += server.sql(cancel).trim().parse::<u32>().expect("a number");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(cancelled > 0, "it did not wait");
        writing.await.expect("no panic").map_err(|error| error.kind())
    };
    let record = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.write(id(1), Change::Insert(&claimed(1))).await.map(drop) }
    });
    assert_eq!(ended_wait(record).await, Err(Kind::Ambiguous), "the standby does not have it");
    let setting = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.set("name", None, Some(b"value")).await.map(drop) }
    });
    assert_eq!(ended_wait(setting).await, Err(Kind::Ambiguous));
    let read = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.get(id(1)).await.map(drop) }
    });
    assert!(ended_wait(read).await.is_err(), "a read that confirms it waits, too");
}

/// The server keeps each session that waits for a standby, also if its connection is closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_standby_does_not_use_up_the_connections() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "missing-standby");
    let server = PostgresServer::start(folder.join("server"));
    let url = format!("{}?connections=2&listen=off&timeout=0.5", server.url());
    let options = Options::default().request_timeout(Duration::from_millis(100));
    let store = Arc::new(Store::open(&url, options).await.expect("it opens"));
    let stored = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&stored)).await.expect("an answer")));
    server.wait_for_missing_standby();
    let mut callers = JoinSet::new();
    for number in 0..8 {
        let store = Arc::clone(&store);
        callers.spawn(async move {
            for round in 0.. {
                let (number, limit) = (1_000 * (number + 1) + round, Duration::from_millis(100));
                let claim = claimed(number);
                let writing = store.write(id(number), Change::Insert(&claim));
                drop(tokio::time::timeout(limit, writing).await);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    let waiting = || -> u32 {
        let count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
        server.sql(count).trim().parse().expect("a number")
    };
    // One connection writes records, and has at most two more beside it. Each write is another one, because reading
    // one in doubt would wait, too.
    let mut number = 100_000;
    let refused = until(async || {
        let read = store.get(id(1)).await.ok()?;
        assert_eq!(read.record(), Some(&stored));
        let waiting = waiting();
        assert!(waiting <= 3, "{waiting} sessions wait");
        number += 1;
        let refused = store.write(id(number), Change::Insert(&claimed(number))).await.err()?;
        (waiting == 3 && refused.kind() == Kind::Unavailable).then_some(refused)
    });
    let refused = refused.await.to_string();
    assert!(refused.contains("3 connections have not answered") && refused.contains("standby"), "{refused}");
    // Nothing is sent any more. A duplicate is answered from a read.
    let duplicate = store.write(id(1), Change::Insert(&stored)).await.expect("an answer");
    assert!(matches!(duplicate, Written::Refused(reading) if reading.record() == Some(&stored)));
    callers.abort_all();
    server.wait_for_no_standby();
    let works = until(async || {
        number += 1;
        store.write(id(number), Change::Insert(&claimed(number))).await.ok()
    });
    assert!(is_done(&works.await), "without a restart");
    until(async || (waiting() == 0).then_some(())).await;
}

/// Text that only a confirmation without a read contains.
const CONFIRMS: &[u8] = b"SELECT pg_catalog.substr(pg_catalog.pg_walfile_name(";

#[tokio::test(flavor = "multi_thread")]
async fn confirmations_are_shared_and_begin_after_the_commit() {
    let schema = Schema::new();
    let (store, proxy) = crate::faults::proxied(&schema).await;
    let confirmations = Arc::<AtomicU64>::default();
    let (counted, gate) = (Arc::clone(&confirmations), Gate::new());
    let held = gate.clone();
    proxy.set_plan(move |request: &Request<'_>| {
        if !request.contains(CONFIRMS) {
            return Fault::Pass;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Fault::DelayResponse(held.pause())
    });
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
    let timeline: String =
        crate::server::connect().await.query_one(timeline, &[]).await.expect("an answer").get(0);
    let confirm = || {
        let (store, timeline) = (Arc::clone(&store), timeline.clone());
        async move { store.confirm(&timeline).await.expect("it is confirmed") }
    };
    let first = tokio::spawn(confirm());
    while !gate.is_waited_for() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // These may have committed after the first one began. A caller waits as soon as it is polled.
    let mut others: Vec<_> = (0..20).map(|_| Box::pin(confirm())).collect();
    for other in &mut others {
        assert!(poll_fn(|context| Poll::Ready(other.as_mut().poll(context).is_pending())).await);
    }
    gate.open();
    for other in others {
        other.await;
    }
    assert!(first.is_finished());
    assert_eq!(confirmations.load(Ordering::SeqCst), 2, "one for all the others");
}

/// The caller that began the confirmation is on a runtime that ends, as in a test or at a shutdown.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_goes_on_after_the_runtime_of_the_first_caller_has_ended() {
    let schema = Schema::new();
    let (store, proxy) = crate::faults::proxied(&schema).await;
    let is_sent = Arc::<AtomicU64>::default();
    let sent = Arc::clone(&is_sent);
    proxy.set_plan(move |request: &Request<'_>| {
        if request.contains(CONFIRMS) && sent.fetch_add(1, Ordering::SeqCst) == 0 {
            return Fault::HalfOpen;
        }
        Fault::Pass
    });
    let other = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let other = other.expect("a runtime");
    let confirming = Arc::clone(&store);
    let first = other.spawn(async move { confirming.confirm(TIMELINE).await.map_err(drop) });
    while is_sent.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let confirming = Arc::clone(&store);
    let second =
        tokio::spawn(async move { confirming.confirm(TIMELINE).await.map_err(|error| error.kind()) });
    other.shutdown_background();
    assert!(first.await.is_err(), "it was cancelled");
    let second = tokio::time::timeout(Duration::from_mins(1), second).await.expect("it does not hang");
    let second = second.expect("no panic");
    assert!(matches!(second, Ok(()) | Err(Kind::Ambiguous)), "{second:?}");
}

/// The timeline of a server that was never promoted.
const TIMELINE: &str = "00000001";

/// A primary, and a copy of it that takes writes too: the primary was not stopped before the failover.
async fn split(folder: &ScratchDir) -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start(folder.join("primary"));
    Store::open(&primary.url(), Options::default()).await.expect("it opens").close().await;
    let mut standby = primary.standby(folder.join("standby"));
    standby.catch_up(&primary);
    standby.promote();
    (primary, standby)
}

/// A store with one connection that writes and one that reads, through a proxy that leads to `server`.
async fn proxied(server: &PostgresServer) -> (Arc<Store>, FaultProxy) {
    let (url, plan) = (server.url(), |_: &Request<'_>| Fault::Pass);
    let address = crate::faults::address_in(&url);
    let proxy = FaultProxy::start(address, Protocol::Postgres, plan).await.expect("a port");
    let url = url.replace(&address.to_string(), &proxy.address().to_string());
    let store = Store::open(&format!("{url}?connections=2&listen=off"), Options::default()).await;
    (Arc::new(store.expect("it opens")), proxy)
}

/// The new primary confirms only what it has itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_the_replaced_primary_is_not_confirmed_by_the_new_one() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "confirmed-elsewhere");
    let (primary, promoted) = split(&folder).await;
    let (store, proxy) = proxied(&primary).await;
    store.confirm("00000001").await.expect("on the server that committed");
    proxy.swap(crate::faults::address_in(&promoted.url()), Existing::Cut);
    let is_elsewhere = |error: &Error| error.to_string().contains("failed over to timeline 00000002");
    until(async || store.confirm("00000001").await.err().filter(is_elsewhere)).await;
    store.confirm("00000002").await.expect("on the server that committed");
}

/// The refusal comes from the replaced primary, while the store finds the new one, which never had the entry.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_in_doubt_is_not_confirmed_by_another_server() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "refused-elsewhere");
    let (primary, promoted) = split(&folder).await;
    let (store, proxy) = proxied(&primary).await;
    let first = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&first)).await.expect("an answer")));
    store.doubt(id(1));
    let refusal = Gate::new();
    let held = refusal.clone();
    proxy.set_plan(move |request: &Request<'_>| {
        if !request.contains(b".write(") {
            return Fault::Pass;
        }
        Fault::DelayResponse(held.pause())
    });
    proxy.swap(crate::faults::address_in(&promoted.url()), Existing::Keep);
    let again = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.write(id(1), Change::Insert(&first)).await }
    });
    while !refusal.is_waited_for() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // On a new connection.
    assert_eq!(store.get(id(2)).await.expect("an answer").entry, None);
    refusal.open();
    let again = again.await.expect("no panic").expect_err("the new primary does not have what refused it");
    assert_eq!(again.kind(), Kind::Ambiguous, "{again}");
    assert_eq!(primary.sql("SELECT count(*) FROM semel.records WHERE version IS NOT NULL").trim(), "1");
}

/// Waits for at most a minute.
async fn until<T>(mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..1_200 {
        if let Some(value) = attempt().await {
            return value;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it did not happen in time");
}
