//! A replica takes over.

use crate::world::Keys;
use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Kind, Severity, Store as _};
use semel_redis::Store;
use semel_test_support::{RedisReply, RedisServer, ScratchDir, services};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::time::Duration;

/// Claims and finishes; returns the master's offset after the acknowledgement.
async fn acknowledged(store: &Store, master: &RedisServer, number: u64) -> u64 {
    let claim = claimed(number);
    assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    let paid = finished(&claim, "paid");
    let written = store.write(id(number), Change::Replace(Unchanged::of(&claim), &paid)).await;
    assert!(is_done(&written.expect("an answer")));
    offset(master, "master_repl_offset")
}

fn offset(server: &RedisServer, name: &str) -> u64 {
    server.info(name).parse().expect("a number")
}

/// The record, as soon as the node has found the new master.
async fn state_of(store: &Store, number: u64) -> Option<StateName> {
    let found = async {
        loop {
            match store.get(id(number)).await {
                Ok(reading) => break reading.record().map(Record::state_name),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), found).await.expect("a server takes writes")
}

struct Pair {
    master: RedisServer,
    replica: RedisServer,
    _folder: ScratchDir,
}

impl Pair {
    fn start(name: &str) -> Self {
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name);
        let master = RedisServer::start(folder.join("master"), &[]);
        let replica = master.replica(folder.join("replica"));
        Self { master, replica, _folder: folder }
    }

    fn url(&self, parameters: &str) -> String {
        format!("redis://{},{}?connect_timeout=2{parameters}", self.master.address(), self.replica.address())
    }
}

/// Only acknowledged writes that the replica did not have are lost. A hazard warned of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_replica_loses_only_unreceived_writes() {
    if !RedisServer::is_installed() {
        return;
    }
    let mut pair = Pair::start("promotion");
    let store = Store::open(&pair.url("")).await.expect("the master takes writes");
    let hazards = store.hazards().await.expect("looked at");
    let hazard_found =
        hazards.iter().find(|hazard| hazard.code == "redis-asynchronous-replica").expect("a hazard");
    assert_eq!(hazard_found.severity, Severity::Danger);
    assert!(
        hazard_found.what.contains("loses the last acknowledged writes")
            && hazard_found.what.contains("runs again"),
        "{hazard_found:?}"
    );
    let mut offsets = Vec::new();
    for number in 0..30 {
        offsets.push(acknowledged(&store, &pair.master, number).await);
    }
    while offset(&pair.replica, "slave_repl_offset") < offsets[29] {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The replica falls behind, and the master continues without it.
    pair.replica.ask("REPLICAOF 127.0.0.1 1");
    let received = offset(&pair.replica, "slave_repl_offset");
    for number in 30..50 {
        offsets.push(acknowledged(&store, &pair.master, number).await);
    }
    pair.master.kill();
    pair.replica.promote();
    let mut lost = 0;
    for (number, offset) in (0..).zip(offsets) {
        let state = state_of(&store, number).await;
        if offset <= received {
            assert_eq!(state, Some(StateName::Succeeded), "{number}: the replica had it");
        }
        lost += u32::from(state.is_none());
        assert!(
            state.is_none_or(|state| state == StateName::Succeeded),
            "{number}: complete, or lost completely"
        );
    }
    assert_eq!(lost, 20, "what was acknowledged after the replica fell behind");
    // As the hazard says: the claim is lost, and the command runs again.
    assert!(is_done(&store.write(id(40), Change::Insert(&claimed(40))).await.expect("an answer")));
}

/// With `wait=1`, acknowledged writes are on the replica; otherwise the write is ambiguous.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_confirmed_by_the_replica_survives_the_master() {
    if !RedisServer::is_installed() {
        return;
    }
    let mut pair = Pair::start("promotion-wait");
    let store = Store::open(&pair.url("&wait=1&timeout=6")).await.expect("the master takes writes");
    let hazards = store.hazards().await.expect("looked at");
    assert!(hazards.iter().all(|hazard| hazard.severity != Severity::Danger), "{hazards:?}");
    for number in 0..30 {
        acknowledged(&store, &pair.master, number).await;
    }
    pair.replica.ask("REPLICAOF 127.0.0.1 1");
    let doubtful =
        store.write(id(30), Change::Insert(&claimed(30))).await.expect_err("no replica confirms it");
    assert_eq!(doubtful.kind(), Kind::Ambiguous, "{doubtful}");
    let unproven = store.get(id(30)).await.expect_err("what may be lost is not shown either");
    assert_eq!(unproven.kind(), Kind::Unavailable, "{unproven}");
    pair.master.kill();
    pair.replica.promote();
    // The new master has no replica, so it cannot confirm anything and is read without confirmation.
    let looking = Store::open(&pair.url("")).await.expect("the new master takes writes");
    for number in 0..30 {
        assert_eq!(state_of(&looking, number).await, Some(StateName::Succeeded), "{number}");
    }
    assert_eq!(state_of(&looking, 30).await, None, "and no other answer was given");
}

/// `WAITAOF` came with Redis 7.2; Valkey has it. A server without it is refused.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_waits_for_the_disk_if_the_server_reports_it() {
    for url in [services::redis_url(), services::valkey_url()].into_iter().flatten() {
        let keys = Keys::at(&url);
        let knows = !matches!(keys.client().ask(&["WAITAOF", "0", "0", "1"]), RedisReply::Error(_));
        let opened = Store::open(&keys.url_with("&waitaof=on")).await;
        if !knows {
            let refused = opened.expect_err("it cannot confirm anything");
            assert!(refused.to_string().contains("waitaof=on"), "{refused}");
            continue;
        }
        let store = opened.expect("it can");
        let claim = claimed(1);
        assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
        assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&claim));
    }
}
