//! A standby that nobody waited for takes over: what is lost, and that it was told before.

use crate::records::{claimed, finished, id, is_done};
use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Severity, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use std::time::Duration;

/// Where a server's log ends, as a number.
fn position(server: &PostgresServer, function: &str) -> u64 {
    let bytes = server.sql(&format!("SELECT {function}() - '0/0'::pg_lsn"));
    bytes.trim().parse().expect("a position")
}

/// A command that was claimed and finished, and where the log ended as soon as that was acknowledged.
async fn acknowledged(store: &Store, primary: &PostgresServer, number: u64) -> u64 {
    let claim = claimed(number);
    assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    let paid = finished(&claim, "paid");
    let written = store.write(id(number), Change::Replace(Unchanged::of(&claim), &paid)).await;
    assert!(is_done(&written.expect("an answer")));
    position(primary, "pg_current_wal_flush_lsn")
}

/// What stands there, as soon as the node has found the server that takes writes now.
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

/// Acknowledged writes that the standby has not replayed are lost, and no others. The danger has a name beforehand.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_asynchronous_standby_loses_only_what_it_had_not_replayed() {
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
    let told =
        hazards.iter().find(|hazard| hazard.code == "postgres-asynchronous-standby").expect("a hazard");
    assert_eq!(told.severity, Severity::Danger);
    assert!(
        told.what.contains("loses the last acknowledged writes") && told.what.contains("runs again"),
        "{told:?}"
    );
    assert!(told.mend.contains("synchronous_standby_names"), "{told:?}");

    let mut positions = Vec::new();
    for number in 0..30 {
        positions.push(acknowledged(&store, &primary, number).await);
    }
    standby.catch_up(&primary);
    // It falls behind, and the primary goes on without it.
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
        assert!(entry.is_none_or(|state| state == StateName::Succeeded), "{number}: whole, or lost whole");
    }
    assert_eq!(lost, 20, "what was acknowledged after the standby fell behind");
    // This is what the hazard says: its claim is lost, and its command runs again.
    assert!(is_done(&store.write(id(40), Change::Insert(&claimed(40))).await.expect("an answer")));
    let hazards = store.hazards().await.expect("looked at");
    assert!(
        hazards.iter().all(|hazard| hazard.code != "postgres-asynchronous-standby"),
        "no standby follows any more"
    );
}

/// With a standby that commits wait for, the same promotion loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_promoted_synchronous_standby_loses_nothing() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "promotion-sync");
    let mut primary = PostgresServer::start(folder.join("primary"));
    let mut standby = primary.standby(folder.join("standby"));
    primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'");
    primary.sql("SELECT pg_reload_conf()");
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
