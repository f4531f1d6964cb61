//! Lost answers, hung servers and incomplete data: nothing is guessed, nothing is written partially, and no
//! wait is unbounded.

use crate::world::Keys;
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Count, Filter, Kind, Store as _};
use semel_redis::Store;
use semel_test_support::{RedisServer, ScratchDir};
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Request, Script};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_mins(1);
/// Text that only commands about records contain.
const RECORD: &str = "}r:";

fn address_in(url: &str) -> SocketAddr {
    url.split("//")
        .nth(1)
        .and_then(|rest| rest.split(['/', '?']).next()?.parse().ok())
        .expect("an address and a port")
}

async fn proxied(keys: &Keys) -> (Store, FaultProxy) {
    let url = keys.url_with("&notify=off&timeout=1.5");
    let server = address_in(&url);
    let proxy =
        FaultProxy::start(server, Protocol::Redis, |_: &Request<'_>| Fault::Pass).await.expect("a port");
    let url = url.replace(&server.to_string(), &proxy.address().to_string());
    let store = Store::open(&url).await.expect("the store opens");
    // Servers keep scripts; from here on every command is sent once.
    assert!(is_done(&store.write(id(900), Change::Insert(&claimed(900))).await.expect("an answer")));
    store.get(id(900)).await.expect("an answer");
    (store, proxy)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_acknowledgement_is_ambiguous_and_never_sent_again() {
    let Some(keys) = Keys::new() else { return };
    let (store, proxy) = proxied(&keys).await;
    for (fault, is_written) in [(Fault::CutAfter, true), (Fault::CutBefore, false)] {
        let number = u64::from(is_written);
        proxy.set_plan(Script::of(RECORD, [fault]));
        let claim = claimed(number);
        let written =
            timeout(TIMEOUT, store.write(id(number), Change::Insert(&claim))).await.expect("a bounded wait");
        assert_eq!(
            written.map_err(|error| error.kind()).err(),
            Some(Kind::Ambiguous),
            "written: {is_written}"
        );
        let reading = store.get(id(number)).await.expect("an answer");
        assert_eq!(reading.record().is_some(), is_written, "it was sent once, and not again");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_write_whose_answer_was_lost_is_ambiguous_too() {
    let Some(keys) = Keys::new() else { return };
    let (store, proxy) = proxied(&keys).await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    proxy.set_plan(Script::of(RECORD, [Fault::CutAfter]));
    let written = store.write(id(1), Change::Insert(&claimed(1))).await;
    assert_eq!(written.map_err(|error| error.kind()).err(), Some(Kind::Ambiguous));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_costs_a_bounded_wait() {
    let Some(keys) = Keys::new() else { return };
    let (store, proxy) = proxied(&keys).await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    proxy.set_plan(|_: &Request<'_>| Fault::HalfOpen);
    let written =
        timeout(TIMEOUT, store.write(id(2), Change::Insert(&claimed(2)))).await.expect("a bounded wait");
    assert_eq!(written.map_err(|error| error.kind()).err(), Some(Kind::Ambiguous));
    let read = timeout(TIMEOUT, store.get(id(1))).await.expect("a bounded wait");
    assert_eq!(read.map_err(|error| error.kind()).err(), Some(Kind::Unavailable));
    proxy.set_plan(|_: &Request<'_>| Fault::Pass);
    proxy.cut();
    let again = async {
        while store.get(id(1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, again).await.expect("it answers again as soon as the server does");
}

/// An address moves in a failover, or a replaced master becomes a replica: the connection stays open, but the
/// server behind it takes no writes.
#[tokio::test(flavor = "multi_thread")]
async fn a_master_demoted_under_an_open_connection_is_not_trusted() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "demoted");
    let master = RedisServer::start(folder.join("master"), &[]);
    let replica = master.replica(folder.join("replica"));
    let address = |server: &RedisServer| server.address().parse().expect("an address");
    let proxy = FaultProxy::start(address(&master), Protocol::Redis, |_: &Request<'_>| Fault::Pass)
        .await
        .expect("a port");
    let store =
        Store::open(&format!("redis://{}?timeout=2", proxy.address())).await.expect("the store opens");
    let claim = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    while replica.ask("DBSIZE") != master.ask("DBSIZE") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    proxy.swap(address(&replica), Existing::Follow);
    for _ in 0..4 {
        let read = timeout(TIMEOUT, store.get(id(1))).await.expect("a bounded wait");
        assert_eq!(
            read.map_err(|error| error.kind()).err(),
            Some(Kind::ReadOnly),
            "a replica may lag behind"
        );
    }
    let listed = timeout(TIMEOUT, store.page(&Filter::default(), None, 5)).await.expect("a bounded wait");
    assert_eq!(listed.map_err(|error| error.kind()).err(), Some(Kind::ReadOnly));
    let next = finished(&claim, "paid");
    let change = Change::Replace(Unchanged::of(&claim), &next);
    let written = timeout(TIMEOUT, store.write(id(1), change)).await.expect("a bounded wait");
    assert_eq!(written.map_err(|error| error.kind()).err(), Some(Kind::ReadOnly), "nothing was written");
    proxy.swap(address(&master), Existing::Cut);
    let again = async {
        while store.get(id(1)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, again).await.expect("it is back at the master");
}

/// Redis rolls nothing back: anything that could fail in between must be found before the first change.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_cannot_be_finished_changes_nothing() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("&buckets=1").await;
    let claim = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let done = finished(&claim, "paid");
    let succeeded = done.state_name().number();
    for key in ["due".to_owned(), format!("s{succeeded}"), "callers".to_owned()] {
        let key = format!("{{{}:0}}{key}", keys.prefix);
        let aside = format!("{key}-aside");
        let had = keys.client().ask(&["EXISTS", &key]).number() == 1;
        if had {
            keys.client().ask(&["RENAME", &key, &aside]);
        }
        keys.client().ask(&["SET", &key, "somebody else's"]);
        let refused = store
            .write(id(1), Change::Replace(Unchanged::of(&claim), &done))
            .await
            .expect_err("it cannot be finished");
        assert_eq!(refused.kind(), Kind::Unfit, "{refused}");
        assert!(refused.to_string().contains(&key), "{refused}");
        assert_eq!(
            store.get(id(1)).await.expect("an answer").record(),
            Some(&claim),
            "{key}: it is as it was"
        );
        keys.client().ask(&["DEL", &key]);
        if had {
            keys.client().ask(&["RENAME", &aside, &key]);
        }
    }
    // A counter that is not a number fails when it is incremented.
    let callers = format!("{{{}:0}}callers", keys.prefix);
    let caller = &semel_testkit::records::caller(2).as_bytes()[..8].to_vec();
    keys.client().ask(&[&b"HSET"[..], callers.as_bytes(), caller, b"many"]);
    let refused = store.write(id(2), Change::Insert(&claimed(2))).await.expect_err("it cannot be counted");
    assert_eq!(refused.kind(), Kind::Unfit, "{refused}");
    assert_eq!(store.get(id(2)).await.expect("an answer").entry, None, "nothing was written");
    assert_eq!(store.count(Count::Records, 10).await.expect("an answer").count, 1);
}

/// A server without memory refuses writes, and nothing was written.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_server_refuses_writes_and_still_reads() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "full");
    let server = RedisServer::start(folder.join("server"), &[]);
    let store = Store::open(&server.url()).await.expect("the store opens");
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    server.ask("CONFIG SET maxmemory 1");
    let refused = store.write(id(2), Change::Insert(&claimed(2))).await.expect_err("there is no room");
    assert_eq!(refused.kind(), Kind::Full, "{refused}");
    assert!(store.get(id(1)).await.expect("an answer").record().is_some());
    server.ask("CONFIG SET maxmemory 0");
    assert_eq!(store.get(id(2)).await.expect("an answer").entry, None, "nothing was written");
    assert_eq!(store.count(Count::Records, 9).await.expect("an answer").count, 1);
}

/// Scripts that the server has forgotten are sent again.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_are_sent_again_to_a_server_without_them() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "scripts");
    let server = RedisServer::start(folder.join("server"), &[]);
    let store = Store::open(&server.url()).await.expect("the store opens");
    for number in 0..3 {
        server.ask("SCRIPT FLUSH");
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
        assert!(store.get(id(number)).await.expect("an answer").record().is_some());
    }
}

/// Everything that was accepted before `close` is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_store_answers_only_what_it_had_accepted() {
    let Some(keys) = Keys::new() else { return };
    let store = std::sync::Arc::new(keys.open("").await);
    let mut writes = tokio::task::JoinSet::new();
    for number in 0..200 {
        let store = std::sync::Arc::clone(&store);
        writes.spawn(async move { store.write(id(number), Change::Insert(&claimed(number))).await });
    }
    tokio::task::yield_now().await;
    timeout(TIMEOUT, store.close()).await.expect("it closes");
    for written in writes.join_all().await {
        match written {
            Ok(written) => assert!(is_done(&written)),
            Err(error) => assert!(matches!(error.kind(), Kind::Closed | Kind::Unavailable), "{error}"),
        }
    }
    assert_eq!(store.get(id(1)).await.map_err(|error| error.kind()).err(), Some(Kind::Closed));
}
