//! No record has an expiry of the server's own: a server whose clock is wrong would remove an outcome early.

use crate::world::{Keys, servers_of};
use semel_core::machine::{self, Begin, Decision, Found, NewAttempt, Unchanged};
use semel_core::record::{Record, Token};
use semel_core::store::{Backend as _, Change, Count, Hazard, Severity, Store as _};
use semel_redis::{Backend, Store};
use semel_test_support::{RedisClient, RedisReply, RedisServer, ScratchDir, services};
use semel_testkit::records::{NOW, claimed, command, finished, id, is_done, stamp};
use std::time::Duration;

const DAY_MS: i64 = 24 * 3_600_000;
const TIMEOUT: Duration = Duration::from_mins(5);

async fn put(store: &Store, number: u64, from: Option<&Record>, next: &Record) {
    let change = from.map_or(Change::Insert(next), |from| Change::Replace(Unchanged::of(from), next));
    assert!(is_done(&store.write(id(number), change).await.expect("an answer")));
}

/// Stores an outcome.
async fn outcome(store: &Store, number: u64) -> Record {
    let claim = claimed(number);
    put(store, number, None, &claim).await;
    let done = finished(&claim, "paid");
    put(store, number, Some(&claim), &done).await;
    done
}

fn keys_like(server: &mut RedisClient, pattern: &str) -> Vec<Vec<u8>> {
    let RedisReply::Array(keys) = server.ask(&["KEYS", pattern]) else { panic!("no keys") };
    keys.into_iter().map(RedisReply::bytes).collect()
}

/// The times to live of all records with a prefix, over all servers.
fn times_to_live(url: &str, prefix: &str) -> Vec<i64> {
    let of_server = |mut server: RedisClient| {
        let keys = keys_like(&mut server, &format!("{{{prefix}:*}}r:*"));
        keys.into_iter().map(|key| server.ask(&[&b"PTTL"[..], &key]).number()).collect::<Vec<_>>()
    };
    servers_of(url).into_iter().flat_map(of_server).collect()
}

/// What an older version did when it stored an outcome.
fn set_expiries(url: &str, prefix: &str) {
    for mut server in servers_of(url) {
        for key in keys_like(&mut server, &format!("{{{prefix}:*}}r:*")) {
            assert_eq!(server.ask(&[&b"PEXPIRE"[..], &key, b"3196800000"]).number(), 1);
        }
    }
}

/// What a clock that is set forward does to keys with an expiry.
fn set_clock_forward(server: &RedisServer, days: i64) {
    let mut client = server.client();
    for key in keys_like(&mut client, "*") {
        let left = client.ask(&[&b"PTTL"[..], &key]).number();
        if left >= 0 {
            client.ask(&[&b"PEXPIRE"[..], &key, (left - days * DAY_MS).to_string().as_bytes()]);
        }
    }
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, waiting).await.expect(what);
}

async fn expiry_hazard(store: &dyn semel_core::store::Store) -> Option<Hazard> {
    let hazards = store.hazards().await.expect("looked at");
    hazards.into_iter().find(|hazard| hazard.code == "redis-expiry")
}

/// Abandoned, so that the next request with the key is another attempt.
fn abandoned(record: &Record) -> Record {
    machine::abandon(record, record.token(), stamp(NOW + 1)).expect("its owner may").next
}

async fn no_write_sets_an_expiry(url: Option<String>) {
    let Some(url) = url else { return };
    let keys = Keys::at(&url);
    for (number, parameters) in [(1, ""), (2, "&ttl=on")] {
        let store = keys.open(parameters).await;
        let claim = claimed(number);
        put(&store, number, None, &claim).await;
        let given_up = abandoned(&claim);
        put(&store, number, Some(&claim), &given_up).await;
        let new_attempt = NewAttempt { token: Token::from_random(77), begin: Begin::Processing };
        let decided =
            machine::decide(Found::Record(&given_up), &command(number), new_attempt, stamp(NOW + 2));
        let Decision::Run(again) = decided else { panic!("the next attempt") };
        assert_eq!(times_to_live(&url, &keys.prefix).iter().max(), Some(&-1), "given up");
        put(&store, number, Some(&given_up), &again.next).await;
        let done = finished(&again.next, "paid");
        assert!(done.gone_at().is_some(), "it ends");
        put(&store, number, Some(&again.next), &done).await;
    }
    assert_eq!(times_to_live(&url, &keys.prefix), [-1, -1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_sets_an_expiry_on_redis() {
    no_write_sets_an_expiry(services::redis_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_sets_an_expiry_on_valkey() {
    no_write_sets_an_expiry(services::valkey_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_sets_an_expiry_on_a_cluster() {
    no_write_sets_an_expiry(services::redis_cluster_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_survives_a_wrong_clock_of_the_server() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "wrong-clock");
    let server = RedisServer::start(folder.join("server"), &[]);
    let store = Store::open(&server.url()).await.expect("it opens");
    let done = outcome(&store, 1).await;
    set_clock_forward(&server, 39);
    assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&done), "it would run again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_removes_the_expiry_of_an_older_version() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    let claim = claimed(1);
    put(&store, 1, None, &claim).await;
    set_expiries(&services::redis_url().expect("a server"), &keys.prefix);
    put(&store, 1, Some(&claim), &finished(&claim, "paid")).await;
    assert_eq!(keys.client().ask(&["PTTL", &keys.only_key("r:*")]).number(), -1);
}

async fn expiries_of_older_versions_are_removed(url: Option<String>) {
    let Some(url) = url else { return };
    let keys = Keys::at(&url);
    let older = keys.open("&buckets=3").await;
    for number in 0..500 {
        put(&older, number, None, &claimed(number)).await;
    }
    outcome(&older, 500).await;
    older.close().await;
    set_expiries(&url, &keys.prefix);
    let store = keys.open("").await;
    until("every expiry is removed", async || {
        times_to_live(&url, &keys.prefix).iter().all(|left| *left == -1)
    })
    .await;
    assert_eq!(store.count(Count::Records, 1_000).await.expect("an answer").count, 501);
}

#[tokio::test(flavor = "multi_thread")]
async fn expiries_of_older_versions_are_removed_on_redis() {
    expiries_of_older_versions_are_removed(services::redis_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expiries_of_older_versions_are_removed_on_valkey() {
    expiries_of_older_versions_are_removed(services::valkey_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expiries_of_older_versions_are_removed_on_a_cluster() {
    expiries_of_older_versions_are_removed(services::redis_cluster_url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expiry_is_a_hazard_until_a_pass_finds_none() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "expiries");
    let server = RedisServer::start(folder.join("server"), &[]);
    let address = server.url().split_once(':').expect("a URL").1.to_owned();
    let older = Store::open(&server.url()).await.expect("it opens");
    outcome(&older, 1).await;
    older.close().await;
    let inspect = async || {
        let inspection = Backend.inspect(&address).await.expect("it may be looked at");
        expiry_hazard(&*inspection).await
    };
    assert_eq!(inspect().await, None, "no key of the server has an expiry");
    set_expiries(&server.url(), "semel");
    // Something else on the server, so that the number of such keys alone proves nothing.
    server.ask("SET mine 1 EX 100000");
    assert_eq!(inspect().await.expect("nobody has looked").severity, Severity::Unverified);
    let store = Store::open(&server.url()).await.expect("it opens");
    until("one is found", async || {
        let hazard = expiry_hazard(&store).await;
        hazard.is_some_and(|hazard| hazard.severity == Severity::Danger && hazard.what.contains("removed 1."))
    })
    .await;
    assert!(inspect().await.is_some(), "no pass has found none");
    store.close().await;
    let store = Store::open(&server.url()).await.expect("it opens");
    until("a pass finds none", async || expiry_hazard(&store).await.is_none()).await;
    assert_eq!(inspect().await, None, "the doctor learns of it");
    store.close().await;
    // An older version comes back.
    set_expiries(&server.url(), "semel");
    assert!(inspect().await.is_some(), "more keys have an expiry than when a pass found none");
    let store = Store::open(&server.url()).await.expect("it opens");
    until("it is found again", async || {
        expiry_hazard(&store).await.is_some_and(|hazard| hazard.severity == Severity::Danger)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_that_cannot_end_is_reported() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "unended");
    let server = RedisServer::start(folder.join("server"), &[]);
    server.ask("SET {semel:63}s6 mine EX 100000");
    let store = Store::open(&server.url()).await.expect("it opens");
    until("it is reported", async || {
        let hazard = expiry_hazard(&store).await;
        hazard.is_some_and(|hazard| {
            hazard.severity == Severity::Unverified && hazard.what.contains("{semel:63}s6")
        })
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pass_does_not_create_a_store_that_is_gone() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "flushed");
    let server = RedisServer::start(folder.join("server"), &[]);
    server.ask("SET mine 1 EX 100000");
    let store = Store::open(&server.url()).await.expect("it opens");
    server.ask("DEL {semel}meta");
    let has_ended = |hazard: Option<Hazard>| hazard.is_none_or(|hazard| hazard.what.contains("ended early"));
    until("the pass ends", async || has_ended(expiry_hazard(&store).await)).await;
    store.close().await;
    assert_eq!(server.ask("KEYS {semel}meta"), RedisReply::Array(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_parameter_ttl_is_ignored_and_reported() {
    let Some(keys) = Keys::new() else { return };
    let url = keys.url_with("&ttl=off");
    let warnings = Backend.warnings(url.split_once(':').expect("a URL").1);
    assert!(warnings.len() == 1 && warnings[0].contains("`ttl`"), "{warnings:?}");
    let hazards = keys.open("&ttl=off").await.hazards().await.expect("looked at");
    let ignored = hazards.iter().find(|hazard| hazard.code == "redis-ttl-ignored").expect("it is reported");
    assert_eq!(ignored.severity, Severity::Notice);
    assert_eq!(Backend.warnings(keys.url_with("").split_once(':').expect("a URL").1), Vec::<String>::new());
}

/// Entries of records that are gone are removed from the lists when they are found.
#[tokio::test(flavor = "multi_thread")]
async fn entries_of_removed_records_leave_the_lists() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    put(&store, 1, None, &claimed(1)).await;
    assert_eq!(keys.client().ask(&["DEL", &keys.only_key("r:*")]).number(), 1);
    assert_eq!(store.count(Count::Records, 10).await.expect("an answer").count, 1, "it is still listed");
    let filter = semel_core::store::Filter::default();
    assert_eq!(store.page(&filter, None, 10).await.expect("an answer").items, []);
    assert_eq!(store.count(Count::Records, 10).await.expect("an answer").count, 0);
    put(&store, 1, None, &claimed(1)).await;
    assert_eq!(store.page(&filter, None, 10).await.expect("an answer").items.len(), 1);
}
