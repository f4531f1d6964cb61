//! A cluster in which servers are killed and slots are moved.

use semel_core::machine::Unchanged;
use semel_core::record::StateName;
use semel_core::store::{Change, Count, Filter, Kind, Severity, Store as _, Written};
use semel_redis::Store;
use semel_test_support::{RedisCluster, RedisServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_mins(5);

/// Claims and finishes, with as many tries as the cluster needs; after an ambiguous error it reads again,
/// like the engine.
async fn run(store: &Store, number: u64) {
    let claim = claimed(number);
    let done = finished(&claim, "paid");
    for (change, expected) in
        [(Change::Insert(&claim), &claim), (Change::Replace(Unchanged::of(&claim), &done), &done)]
    {
        loop {
            match store.write(id(number), change).await {
                Ok(Written::Done { .. }) => break,
                Ok(Written::Refused(found)) => panic!("{number}: no other process writes it: {found:?}"),
                Err(error) => {
                    assert!(
                        matches!(error.kind(), Kind::Unavailable | Kind::Ambiguous | Kind::ReadOnly),
                        "{error}"
                    );
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    if error.is_ambiguous() && read(store, number).await.as_ref() == Some(expected) {
                        break;
                    }
                }
            }
        }
    }
}

async fn read(store: &Store, number: u64) -> Option<semel_core::record::Record> {
    loop {
        match store.get(id(number)).await {
            Ok(reading) => return reading.record().cloned(),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_survives_a_failover_and_reports_what_it_can_lose() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "cluster");
    let mut cluster = RedisCluster::start_failing_over(folder.path());
    let store =
        Store::open(&format!("{}?timeout=2&connect_timeout=1", cluster.url())).await.expect("it opens");
    assert!(
        store.capabilities().clocks_can_differ(),
        "each server has its own clock: the skew has to be configured"
    );
    let hazards = store.hazards().await.expect("looked at");
    let codes: Vec<_> = hazards.iter().map(|hazard| (hazard.severity, hazard.code)).collect();
    assert!(codes.contains(&(Severity::Danger, "redis-asynchronous-replica")), "{codes:?}");
    assert!(codes.contains(&(Severity::Notice, "redis-cluster-partition")), "{codes:?}");
    for number in 0..60 {
        run(&store, number).await;
    }
    cluster.catch_up();
    let victim = cluster.master();
    cluster.servers[victim].kill();
    for number in 0..60 {
        let record = timeout(TIMEOUT, read(&store, number)).await.expect("its replica takes over");
        assert_eq!(record.map(|record| record.state_name()), Some(StateName::Succeeded), "{number}");
    }
    for number in 60..120 {
        timeout(TIMEOUT, run(&store, number)).await.expect("it continues");
    }
    assert_eq!(store.count(Count::Records, 1_000).await.expect("an answer").count, 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn slot_migration_delays_writes_and_loses_none() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "cluster-moving");
    let cluster = Arc::new(RedisCluster::start(folder.path()));
    let store = Arc::new(Store::open(&cluster.url()).await.expect("it opens"));
    for number in 0..200 {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    let moving = tokio::task::spawn_blocking({
        let cluster = Arc::clone(&cluster);
        move || cluster.move_slots(4_000)
    });
    let mut writes = JoinSet::new();
    for writer in 0..8 {
        let store = Arc::clone(&store);
        writes.spawn(async move {
            for number in 0..60 {
                run(&store, 1_000 + writer * 60 + number).await;
            }
        });
    }
    timeout(TIMEOUT, writes.join_all()).await.expect("they end");
    moving.await.expect("the slots were moved");
    for number in (0..200).chain(1_000..1_480) {
        assert!(read(&store, number).await.is_some(), "{number}");
    }
    let (mut after, mut shown) = (None, 0);
    loop {
        let page = store.page(&Filter::default(), after.as_ref(), 100).await.expect("an answer");
        shown += page.items.len();
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(shown, 680, "each once");
}
