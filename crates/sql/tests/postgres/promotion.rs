//! An asynchronous standby takes over: what is lost, and that a hazard warned of it.

use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Kind, Severity, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::time::Duration;

/// The end of a server's log, as a number.
fn position(server: &PostgresServer, function: &str) -> u64 {
    let bytes = server.sql(&format!("SELECT {function}() - '0/0'::pg_lsn"));
    bytes.trim().parse().expect("a position")
}

/// Claims and finishes a command; returns the end of the log after the acknowledgement.
async fn acknowledged(store: &Store, primary: &PostgresServer, number: u64) -> u64 {
    let claim = claimed(number);
    assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    let paid = finished(&claim, "paid");
    let written = store.write(id(number), Change::Replace(Unchanged::of(&claim), &paid)).await;
    assert!(is_done(&written.expect("an answer")));
    position(primary, "pg_current_wal_flush_lsn")
}

/// The record, as soon as the node has found the new primary.
async fn state_of(store: &Store, number: u64) -> Option<StateName> {
    let found = async {
        loop {
            match store.get(id(number)).await {
                Ok(reading) => break reading.record().map(Record::state_name),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(1), found).await.expect("a server takes writes")
}

/// Only acknowledged writes that the standby has not replayed are lost. A hazard warned of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_asynchronous_standby_loses_only_unreplayed_writes() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "promotion");
    let mut primary = PostgresServer::start(folder.join("primary"));
    let mut standby = primary.standby(folder.join("standby"));
    let url = format!(
        "postgres://semel@127.0.0.1:{},127.0.0.1:{}/semel?connect_timeout=2",
        primary.port(),
        standby.port()
    );
    let store = Store::open(&url, Options::default()).await.expect("the primary takes writes");
    let hazards = store.hazards().await.expect("looked at");
    let hazard_found =
        hazards.iter().find(|hazard| hazard.code == "postgres-asynchronous-standby").expect("a hazard");
    assert_eq!(hazard_found.severity, Severity::Danger);
    assert!(
        hazard_found.what.contains("loses the last acknowledged writes")
            && hazard_found.what.contains("runs again"),
        "{hazard_found:?}"
    );
    assert!(hazard_found.fix.contains("synchronous_standby_names"), "{hazard_found:?}");

    let mut positions = Vec::new();
    for number in 0..30 {
        positions.push(acknowledged(&store, &primary, number).await);
    }
    standby.catch_up(&primary);
    // It falls behind, and the primary continues without it.
    standby.stop();
    for number in 30..50 {
        positions.push(acknowledged(&store, &primary, number).await);
    }
    primary.kill();
    standby.restart();
    let replayed = position(&standby, "pg_last_wal_replay_lsn");
    standby.promote();

    let mut lost = 0;
    for (number, position) in (0..).zip(positions) {
        let entry = state_of(&store, number).await;
        if position <= replayed {
            assert_eq!(entry, Some(StateName::Succeeded), "{number}: the standby had it");
        }
        lost += u32::from(entry.is_none());
        assert!(
            entry.is_none_or(|state| state == StateName::Succeeded),
            "{number}: complete, or lost completely"
        );
    }
    assert_eq!(lost, 20, "what was acknowledged after the standby fell behind");
    // As the hazard says: the claim is lost, and the command runs again.
    assert!(is_done(&store.write(id(40), Change::Insert(&claimed(40))).await.expect("an answer")));
    let hazards = store.hazards().await.expect("looked at");
    assert!(
        hazards.iter().all(|hazard| hazard.code != "postgres-asynchronous-standby"),
        "no standby follows any more"
    );
}

/// The old primary returns and takes writes: it is the first host of the URL.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_primary_is_not_trusted() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "promotion-old");
    let mut primary = PostgresServer::start(folder.join("primary"));
    let mut standby = primary.standby(folder.join("standby"));
    // A role with only the rights that the guide names.
    primary.sql("CREATE ROLE guest LOGIN");
    let url = |user: &str| {
        let (one, other) = (primary.port(), standby.port());
        format!("postgres://{user}@127.0.0.1:{one},127.0.0.1:{other}/semel?connect_timeout=2&timeout=2")
    };
    let (owners, guests) = (url("semel"), url("guest"));
    Store::open(&owners, Options::default()).await.expect("the primary takes writes").close().await;
    primary.sql(
        "GRANT USAGE ON SCHEMA semel TO guest; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA semel TO guest",
    );
    let store = Store::open(&guests, Options::default()).await.expect("the primary takes writes");
    acknowledged(&store, &primary, 1).await;
    standby.catch_up(&primary);
    primary.kill();
    standby.promote();
    assert_eq!(state_of(&store, 1).await, Some(StateName::Succeeded));
    acknowledged(&store, &standby, 2).await;

    primary.restart();
    assert_eq!(primary.sql("SELECT pg_is_in_recovery()").trim(), "f", "it takes writes");
    // Every connection is reopened.
    standby.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guest'");
    for number in 0..50 {
        assert_eq!(state_of(&store, 2).await, Some(StateName::Succeeded), "{number}");
    }
    for number in 100..130 {
        let claim = claimed(number);
        while store.write(id(number), Change::Insert(&claim)).await.is_err() {}
    }
    let count = "SELECT count(*) FROM semel.records WHERE version IS NOT NULL";
    assert_eq!((primary.sql(count).trim(), standby.sql(count).trim()), ("1", "32"));

    // The new primary is down as well: no server is better than the old one.
    standby.kill();
    let refused = store.get(id(1)).await.expect_err("no server is trusted");
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains("timeline 1, and timeline 2 has been seen") && message.contains("stop it"),
        "{message}"
    );
    let refused =
        store.write(id(200), Change::Insert(&claimed(200))).await.expect_err("no server is trusted");
    assert!(!refused.is_ambiguous(), "{refused}");
    // A node that has not seen the new primary cannot know.
    let fresh = Store::open(&guests, Options::default()).await.expect("it takes writes");
    assert_eq!(state_of(&fresh, 2).await, None);
}

/// With a synchronous standby, the same promotion loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_synchronous_standby_loses_nothing() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "promotion-sync");
    let mut primary = PostgresServer::start(folder.join("primary"));
    let mut standby = primary.standby(folder.join("standby"));
    primary.wait_for_standby();
    let url = format!(
        "postgres://semel@127.0.0.1:{},127.0.0.1:{}/semel?connect_timeout=2",
        primary.port(),
        standby.port()
    );
    let store = Store::open(&url, Options::default()).await.expect("the primary takes writes");
    let hazards = store.hazards().await.expect("looked at");
    assert!(hazards.iter().all(|hazard| hazard.code != "postgres-asynchronous-standby"), "{hazards:?}");
    for number in 0..30 {
        acknowledged(&store, &primary, number).await;
    }
    primary.kill();
    standby.promote();
    for number in 0..30 {
        assert_eq!(state_of(&store, number).await, Some(StateName::Succeeded), "{number}");
    }
}
