//! Several servers in one URL: exactly one of them may take writes, and it must not be one with older data.

use semel_core::machine::Unchanged;
use semel_core::store::{Backend as _, Change, Error, Kind, Severity, Store as _};
use semel_redis::{Backend, Store};
use semel_test_support::{RedisServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_mins(5);

fn url(servers: &[&RedisServer]) -> String {
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    format!("redis://{}?connect_timeout=2&timeout=2", addresses.join(","))
}

/// Inserts further records until `is_expected` accepts a result.
async fn write_until(
    store: &Store,
    from: u64,
    is_expected: impl Fn(&Result<(), Error>) -> bool,
) -> Result<(), Error> {
    let writing = async {
        for number in from.. {
            let claim = claimed(number);
            let written = store
                .write(id(number), Change::Insert(&claim))
                .await
                .map(|written| assert!(is_done(&written)));
            if is_expected(&written) {
                return written;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        unreachable!("there is always a next number");
    };
    tokio::time::timeout(TIMEOUT, writing).await.expect("the wait ends")
}

async fn codes(store: &dyn semel_core::store::Store) -> Vec<(Severity, &'static str)> {
    let hazards = store.hazards().await.expect("looked at");
    hazards.into_iter().map(|hazard| (hazard.severity, hazard.code)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_that_both_take_writes_are_refused() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "rivals");
    let (one, two) =
        (RedisServer::start(folder.join("one"), &[]), RedisServer::start(folder.join("two"), &[]));
    let refused = Store::open(&url(&[&one, &two])).await.expect_err("they are two stores");
    assert_eq!(refused.kind(), Kind::Unfit, "{refused}");
    let message = refused.to_string();
    assert!(message.contains("both take writes") && message.contains(&two.address()), "{message}");
    assert_eq!(two.ask("DBSIZE").number() + one.ask("DBSIZE").number(), 0, "nothing was written");
    // One server with two names is one server.
    let twice = format!("redis://127.0.0.1:{0},localhost:{0}", one.port());
    Store::open(&twice).await.expect("it is one server").close().await;
    // The doctor reads from either, and finds both.
    let address = url(&[&one, &two]).split_once(':').expect("a URL").1.to_owned();
    let inspection = Backend.inspect(&address).await.expect("it may be looked at");
    assert!(codes(&*inspection).await.contains(&(Severity::Danger, "redis-two-masters")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_master_stops_all_writes_until_it_is_gone() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "split");
    let master = RedisServer::start(folder.join("master"), &[]);
    let replica = master.replica(folder.join("replica"));
    let store = Store::open(&url(&[&master, &replica])).await.expect("one takes writes");
    write_until(&store, 0, Result::is_ok).await.expect("written");
    assert!(!codes(&store).await.iter().any(|(_, code)| *code == "redis-two-masters"));
    replica.promote();
    let refused = write_until(&store, 100, Result::is_err).await.expect_err("two take writes");
    assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    assert!(refused.to_string().contains("both take writes"), "{refused}");
    assert!(codes(&store).await.contains(&(Severity::Danger, "redis-two-masters")));
    assert!(store.get(id(0)).await.expect("what is stored is still shown").record().is_some());
    replica.ask(&format!("REPLICAOF 127.0.0.1 {}", master.port()));
    write_until(&store, 1_000, Result::is_ok).await.expect("one takes writes again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_master_that_returns_is_not_trusted() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "former");
    let mut former = RedisServer::start(folder.join("former"), &[]);
    let mut current = former.replica(folder.join("current"));
    let store = Store::open(&url(&[&former, &current])).await.expect("one takes writes");
    write_until(&store, 0, Result::is_ok).await.expect("written");
    while current.ask("DBSIZE") != former.ask("DBSIZE") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    former.kill();
    current.promote();
    write_until(&store, 100, Result::is_ok).await.expect("the replica took over");
    let claim = claimed(7);
    assert!(is_done(&store.write(id(7), Change::Insert(&claim)).await.expect("an answer")));
    current.kill();
    former.restart();
    let is_recognised = |written: &Result<(), Error>| {
        written.as_ref().is_err_and(|error| error.to_string().contains("lacks writes that were acknowledged"))
    };
    let refused = write_until(&store, 7, is_recognised).await.expect_err("it lacks what was acknowledged");
    assert_eq!(refused.kind(), Kind::DataLost, "{refused}");
    assert!(store.get(id(7)).await.is_err(), "an absent command proves nothing");
    former.kill();
    // It returns as the replica that it was started as.
    current.restart();
    current.promote();
    let done = finished(&claim, "paid");
    let finishing = async {
        while store.write(id(7), Change::Replace(Unchanged::of(&claim), &done)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, finishing).await.expect("the newest data is back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_lost_its_data_is_not_an_empty_store() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "lost");
    let mut server = RedisServer::start(folder.join("server"), &["--appendonly", "no"]);
    let store = Store::open(&server.url()).await.expect("it opens");
    write_until(&store, 0, Result::is_ok).await.expect("written");
    server.restart();
    assert_eq!(server.ask("DBSIZE").number(), 0, "it has lost everything");
    let is_recognised = |written: &Result<(), Error>| {
        written.as_ref().is_err_and(|error| error.to_string().contains("it lost its data"))
    };
    // The first command may be lost with the old connection.
    let refused = write_until(&store, 0, is_recognised).await.expect_err("its command must not run again");
    assert_eq!(refused.kind(), Kind::DataLost, "a loss is not an outage: {refused}");
    // A node that only looks notices it too; its connection may be the old one at first.
    let noticing = async {
        while store.check().await.map_err(|error| error.kind()) != Err(Kind::DataLost) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, noticing).await.expect("it is noticed");
    // A new node accepts the current state.
    let anew = Store::open(&server.url()).await.expect("it opens");
    write_until(&anew, 0, Result::is_ok).await.expect("written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_of_another_server_is_reported() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "unrelated");
    let master = RedisServer::start(folder.join("master"), &[]);
    let other = RedisServer::start(folder.join("other"), &[]);
    let unrelated = other.replica(folder.join("unrelated"));
    let store = Store::open(&url(&[&master, &unrelated])).await.expect("one takes writes");
    assert!(codes(&store).await.contains(&(Severity::Danger, "redis-unrelated-replica")));
}
