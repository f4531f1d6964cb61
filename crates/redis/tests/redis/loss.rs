//! A server that loses its data under running nodes: nothing that was acknowledged runs again.

use semel::payload::Json;
use semel::{
    Class, Engine, Event, Failed, Identity, Intent, Key, Observer, Operation, Policy, Scope, Settings,
};
use semel_core::machine::Unchanged;
use semel_core::store::{
    Backend as _, Change, Count, Error, Filter, Kind, SECRET_LOST_SETTING, SECRET_SETTING, Severity,
    Store as _, Written,
};
use semel_redis::{Backend, Store};
use semel_test_support::{RedisCluster, RedisServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) const KEYS: u64 = 40;
const HEARTBEAT: Duration = Duration::from_secs(1);

pub(crate) fn folder(name: &str) -> ScratchDir {
    ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name)
}

/// The names of an engine's events.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Observer for Seen {
    fn observe(&self, event: &Event<'_>) {
        let name = match event {
            Event::StoreLost { error } => format!("lost: {error}"),
            Event::StoreIntact => "intact".to_owned(),
            Event::StoreRefuses { .. } => "refuses".to_owned(),
            Event::SecretsBehind { .. } => "secrets".to_owned(),
            _ => return,
        };
        self.0.lock().expect("no panic").push(name);
    }
}

impl Seen {
    fn has(&self, start: &str) -> bool {
        self.0.lock().expect("no panic").iter().any(|event| event.starts_with(start))
    }
}

/// A node without a cache, so that every answer comes from the store.
async fn node(url: &str, seen: &Seen, cache_bytes_max: usize) -> Engine {
    let store = Arc::new(Store::open(url).await.expect("it opens"));
    let mut settings = Settings { cache_bytes_max, ..Settings::default() };
    // A node that has had no heartbeat for two and a half of these runs nothing.
    settings.clock.heartbeat = HEARTBEAT;
    let built = Engine::builder(store).settings(settings).observer(seen.clone()).build().await;
    built.expect("the store answers")
}

fn intent(number: u64) -> Intent {
    let scope = Scope::new(Identity::api_key("shop"), Operation::named("charge"));
    let key = Key::from_source(&format!("order-number-{number}")).expect("a key");
    Intent::new(scope, key, Policy::new(Class::External), Json::of(&500).expect("a payload"))
}

/// Whether the outcome was replayed.
pub(crate) async fn charge(node: &Engine, number: u64, charges: &Arc<AtomicU32>) -> Result<bool, String> {
    let charges = Arc::clone(charges);
    let ran = node.run(intent(number), move |_| async move {
        charges.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failed>(format!("receipt {number}"))
    });
    let ran = ran.await;
    ran.map(|done| done.replayed).map_err(|error| error.to_string())
}

async fn nothing_runs_again_on(server: RedisServer) {
    let (seen, other_seen, charges) = (Seen::default(), Seen::default(), Arc::default());
    let first = node(&server.url(), &seen, 16 << 20).await;
    let second = node(&server.url(), &other_seen, 0).await;
    for number in 0..KEYS {
        assert_eq!(charge(&first, number, &charges).await, Ok(false));
    }
    assert_eq!(charge(&second, 0, &charges).await, Ok(true));
    server.ask("FLUSHALL");
    for number in 0..KEYS {
        assert_eq!(charge(&first, number, &charges).await, Ok(true), "it is still in the cache");
        let refused = charge(&second, number, &charges).await.expect_err("it may have run");
        assert!(refused.contains("lost data"), "{refused}");
    }
    charge(&first, KEYS, &charges).await.expect_err("nor is a new key claimed");
    assert_eq!(u64::from(charges.load(Ordering::SeqCst)), KEYS, "each ran once");
    for seen in [&seen, &other_seen] {
        while !seen.has("lost: ") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    // Several heartbeats: none refills the store, and the loss is reported once, as what it is.
    tokio::time::sleep(HEARTBEAT * 7 / 2).await;
    for seen in [&seen, &other_seen] {
        let events = seen.0.lock().expect("no panic").clone();
        assert!(matches!(&*events, [lost] if lost.starts_with("lost: ")), "{events:?}");
    }
    assert_eq!(server.ask("DBSIZE").number(), 0, "nothing was written");
    let refusal = first.refuses_writes().expect("the store is lost");
    assert_eq!(refusal.kind, Kind::DataLost);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_server_runs_no_acknowledged_key_again() {
    if RedisServer::is_installed() {
        let folder = folder("emptied");
        nothing_runs_again_on(RedisServer::start(folder.join("server"), &[])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_valkey_runs_no_acknowledged_key_again() {
    let folder = folder("emptied-valkey");
    if let Some(server) = RedisServer::start_valkey(folder.join("server"), &[]) {
        nothing_runs_again_on(server).await;
    }
}

fn kinds(errors: &[Error]) -> Vec<Kind> {
    errors.iter().map(Error::kind).collect()
}

/// Every call that would need what may be lost.
async fn refusals(store: &Store) -> Vec<Error> {
    let claim = claimed(900);
    let done = finished(&claim, "paid");
    vec![
        store.write(id(900), Change::Insert(&claim)).await.expect_err("insert"),
        store.write(id(900), Change::Replace(Unchanged::of(&claim), &done)).await.expect_err("replace"),
        store.write(id(900), Change::Remove(Unchanged::of(&done))).await.expect_err("remove"),
        store.write(id(900), Change::InsertMarker).await.expect_err("insert marker"),
        store.write(id(900), Change::RemoveMarker).await.expect_err("remove marker"),
        store.get(id(900)).await.expect_err("get"),
        store.find(claim.operation_id()).await.expect_err("find"),
        store.page(&Filter::default(), None, 10).await.expect_err("page"),
        store.due(None, 10).await.expect_err("due"),
        store.markers(None, 10).await.expect_err("markers"),
        store.count(Count::Records, 10).await.expect_err("count"),
        store.census().await.expect_err("census"),
        store.tally(None, None, 10).await.expect_err("tally"),
        store.settings().await.expect_err("settings"),
        store.set("name", None, Some(b"value")).await.expect_err("set"),
        store.set("name", Some(b"value"), None).await.expect_err("set"),
        store.check().await.expect_err("check"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_reports_the_loss_and_changes_nothing() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("calls");
    let server = RedisServer::start(folder.join("server"), &[]);
    let store = Store::open(&server.url()).await.expect("it opens");
    store.check().await.expect("nothing is lost");
    server.ask("FLUSHALL");
    for error in refusals(&store).await {
        assert_eq!(error.kind(), Kind::DataLost, "{error}");
        assert!(error.is_retryable() && !error.is_ambiguous(), "a finish continues to try: {error}");
        assert!(error.to_string().contains("--accept-loss"), "{error}");
    }
    assert_eq!(server.ask("DBSIZE").number(), 0, "nothing was written");
    let hazards = store.hazards().await.expect("looked at");
    let found: Vec<_> = hazards.iter().map(|hazard| (hazard.severity, hazard.code)).collect();
    assert!(found.contains(&(Severity::Danger, "redis-data-lost")), "{found:?}");
}

/// The store's own keys, without those of a bucket.
pub(crate) const OWN: [&str; 3] = ["{semel}meta", "{semel}settings", "{semel}identity"];

pub(crate) async fn store_with_records(server: &RedisServer, parameters: &str) -> Store {
    let store = Store::open(&format!("{}{parameters}", server.url())).await.expect("it opens");
    for number in 0..KEYS {
        let claim = claimed(number);
        assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    }
    for name in ["name", SECRET_SETTING] {
        let _ = store.set(name, None, Some(b"value")).await.expect("an answer");
    }
    store
}

pub(crate) fn delete_bucket(server: &RedisServer, bucket: u16) {
    let keys = server.ask(&format!("KEYS {{semel:{bucket}}}*"));
    let semel_test_support::RedisReply::Array(keys) = keys else { panic!("no keys") };
    assert!(!keys.is_empty());
    for key in keys {
        server.client().ask(&[&b"DEL"[..], &key.bytes()]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_part_is_refused_at_start_too_until_the_loss_is_accepted() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("part");
    let server = RedisServer::start(folder.join("server"), &[]);
    let address = format!("//{}", server.address());
    let running = store_with_records(&server, "?buckets=2").await;
    assert_eq!(Backend.accept_loss(&address, "nothing").await.expect("an answer").parts, 0);
    let (mut lost, mut left) = (Vec::new(), Vec::new());
    delete_bucket(&server, 1);
    for number in 0..KEYS {
        match running.get(id(number)).await {
            Ok(reading) => left.push((number, reading.record().expect("it is there").clone())),
            Err(error) => lost.push((number, error)),
        }
    }
    assert!(!lost.is_empty() && !left.is_empty(), "{} and {}", lost.len(), left.len());
    assert!(lost.iter().all(|(_, error)| error.kind() == Kind::DataLost));
    let restarted = Store::open(&server.url()).await.expect("the other bucket can be used");
    for store in [&running, &restarted] {
        let claim = claimed(lost[0].0);
        let refused = store.write(id(lost[0].0), Change::Insert(&claim)).await.expect_err("it may have run");
        assert_eq!(refused.kind(), Kind::DataLost);
        let (number, record) = &left[0];
        let next = finished(record, "paid");
        let replaced = store.write(id(*number), Change::Replace(Unchanged::of(record), &next)).await;
        assert!(matches!(replaced, Ok(Written::Done { .. } | Written::Refused(_))), "{replaced:?}");
        store.count(Count::Records, 10).await.expect_err("part of the count is lost");
        store.due(None, 10).await.expect("what is due elsewhere does not wait");
        store.settings().await.expect("they are left");
        store.check().await.expect_err("a part is lost");
    }
    let accepted = Backend.accept_loss(&address, "2026 by ada: tested").await.expect("accepted");
    assert_eq!((accepted.parts, accepted.of, accepted.settings), (1, 2, false));
    for store in [&running, &restarted] {
        store.check().await.expect("the node goes on without a restart");
        let hazards = store.hazards().await.expect("looked at");
        let notice =
            hazards.iter().find(|hazard| hazard.code == "redis-loss-accepted").expect("who, and why");
        assert!(notice.what.contains("2026 by ada: tested"), "{}", notice.what);
    }
    for (number, _) in &lost {
        assert!(is_done(
            &running.write(id(*number), Change::Insert(&claimed(*number))).await.expect("again")
        ));
    }
    assert_eq!(running.count(Count::Records, 1_000).await.expect("an answer").count, KEYS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_without_its_own_keys_is_not_created_again() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("own-keys");
    let server = RedisServer::start(folder.join("server"), &[]);
    let address = format!("//{}", server.address());
    store_with_records(&server, "?buckets=3").await.close().await;
    for key in OWN {
        assert_eq!(server.ask(&format!("DEL {key}")).number(), 1, "{key}");
    }
    assert!(Backend.exists(&address).await.expect("looked"), "parts of it");
    for _ in 0..2 {
        let refused = Store::open(&server.url()).await.expect_err("a new store would run everything again");
        assert_eq!(refused.kind(), Kind::DataLost, "{refused}");
        let refused = Backend.inspect(&address).await.map(drop).expect_err("nor is it shown as a new one");
        assert_eq!(refused.kind(), Kind::DataLost, "{refused}");
        assert_eq!(server.ask("EXISTS {semel}meta").number(), 0, "nothing was written");
    }
    let accepted = Backend.accept_loss(&address, "tested").await.expect("accepted");
    assert_eq!((accepted.parts, accepted.of, accepted.settings), (0, 3, true));
    let store = Store::open(&server.url()).await.expect("it opens");
    store.check().await.expect("nothing is missing");
    assert_eq!(store.count(Count::Records, 1_000).await.expect("an answer").count, KEYS, "all are found");
    let settings = store.settings().await.expect("an answer");
    let names: Vec<_> = settings.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [SECRET_LOST_SETTING], "the next node may write another secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_emptied_server_has_no_loss_to_accept() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("nothing-left");
    let server = RedisServer::start(folder.join("server"), &[]);
    let running = store_with_records(&server, "").await;
    server.ask("FLUSHALL");
    let refused =
        Backend.accept_loss(&format!("//{}", server.address()), "x").await.expect_err("all is gone");
    assert!(refused.to_string().contains("restart every gateway"), "{refused}");
    assert_eq!(server.ask("DBSIZE").number(), 0);
    // A node that starts now creates another store; the running one does not mistake it for its own.
    let other = Store::open(&server.url()).await.expect("a new store");
    let refused = running.get(id(1)).await.expect_err("it may have run");
    assert_eq!(refused.kind(), Kind::DataLost);
    assert!(refused.to_string().contains("another store"), "{refused}");
    assert!(is_done(&other.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    let found = running.get(id(1)).await.expect("what is found is true");
    assert_eq!(found.record(), Some(&claimed(1)));
}

/// What an older build has written.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_store_gets_its_markers_once() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("older");
    let server = RedisServer::start(folder.join("server"), &[]);
    store_with_records(&server, "?buckets=2").await.close().await;
    server.ask("HDEL {semel}meta identity stage unfinished");
    server.ask("DEL {semel}identity {semel:0}identity {semel:1}identity");
    let inspection = Backend.inspect(&format!("//{}", server.address())).await.expect("it can be read");
    assert_eq!(inspection.get(id(900)).await.expect("an answer").entry, None);
    assert_eq!(server.ask("EXISTS {semel:0}identity").number(), 0, "reading writes nothing");
    let url = server.url();
    let (first, second) = tokio::join!(Store::open(&url), Store::open(&url));
    let (first, second) = (first.expect("it opens"), second.expect("it opens"));
    for store in [&first, &second] {
        store.check().await.expect("it has its markers");
        assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&claimed(1)));
    }
    server.ask("DEL {semel:0}identity");
    let third = Store::open(&server.url()).await.expect("it opens");
    assert_eq!(third.check().await.expect_err("once only").kind(), Kind::DataLost);
}

/// The node that creates the store dies in the middle; another one takes over.
#[tokio::test(flavor = "multi_thread")]
async fn an_unfinished_creation_is_taken_over_under_another_identity() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("unfinished");
    let server = RedisServer::start(folder.join("server"), &[]);
    server.ask("HSET {semel}meta format 1 buckets 4 epoch 1 identity 4-aa stage creating");
    server.ask("SET {semel:2}identity 4-aa");
    let store = store_with_records(&server, "").await;
    store.check().await.expect("every part has a marker");
    assert_ne!(
        server.ask("GET {semel:2}identity").text(),
        "4-aa",
        "what its owner still writes is not mistaken"
    );
    assert_eq!(server.ask("HGET {semel}meta stage").text(), "complete");
}

fn connections(cluster: &RedisCluster) -> u64 {
    let total = |server: &RedisServer| {
        let stats = server.ask("INFO stats").text();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.expect("a number").trim().parse::<u64>().expect("a number")
    };
    cluster.servers.iter().map(total).sum()
}

/// Before it refuses, a node asks again who has the slot: for all commands together.
async fn nobody_opens_a_connection_for_each_refusal(cluster: &RedisCluster, store: &Arc<Store>) {
    let before = connections(cluster);
    let mut asked = tokio::task::JoinSet::new();
    for number in 0..8 * KEYS {
        let store = Arc::clone(store);
        asked.spawn(async move { store.get(id(1_000 + number)).await.is_err() });
    }
    let refused = asked.join_all().await.into_iter().filter(|is_refused| *is_refused).count() as u64;
    let opened = connections(cluster) - before;
    assert!(refused > 60 && opened < refused / 2, "{opened} connections for {refused} refusals");
}

/// One server of a cluster loses its data. Its part is refused, the others go on, and a slot that has moved is not
/// mistaken for a loss.
#[tokio::test(flavor = "multi_thread")]
async fn on_a_cluster_only_the_lost_part_is_refused() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("cluster-loss");
    let cluster = RedisCluster::start(folder.path());
    let store = Arc::new(Store::open(&cluster.url()).await.expect("it opens"));
    let _ = store.set(SECRET_SETTING, None, Some(b"value")).await.expect("an answer");
    for number in 0..KEYS {
        let claim = claimed(number);
        assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    }
    cluster.move_slots(2_000);
    store.check().await.expect("moved, not lost");
    for number in 0..KEYS {
        assert!(store.get(id(number)).await.expect("moved, not lost").record().is_some());
    }
    let victim = &cluster.servers[cluster.master()];
    victim.ask("FLUSHALL");
    let (mut left, mut lost) = (0, Vec::new());
    for number in 0..KEYS {
        match store.get(id(number)).await {
            Ok(reading) => left += u32::from(reading.record().is_some()),
            Err(error) => lost.push(error),
        }
    }
    assert!(left > 0 && !lost.is_empty(), "{left} left, {} lost", lost.len());
    nobody_opens_a_connection_for_each_refusal(&cluster, &store).await;
    assert!(kinds(&lost).iter().all(|kind| *kind == Kind::DataLost), "{lost:?}");
    assert_eq!(left + u32::try_from(lost.len()).expect("few"), u32::try_from(KEYS).expect("few"));
    let mut written = 0;
    for number in KEYS..2 * KEYS {
        match store.write(id(number), Change::Insert(&claimed(number))).await {
            Ok(done) => written += u32::from(is_done(&done)),
            Err(error) => assert_eq!(error.kind(), Kind::DataLost, "{error}"),
        }
    }
    assert!(written > 0, "other buckets go on");
    assert_eq!(store.check().await.expect_err("a part is lost").kind(), Kind::DataLost);
    let address = cluster.url().split_once(':').expect("a URL").1.to_owned();
    let accepted = Backend.accept_loss(&address, "tested").await.expect("accepted");
    assert!(accepted.parts > 0 && accepted.parts < accepted.of, "{accepted:?}");
    store.check().await.expect("accepted");
}

/// An attempt that has had its effect keeps trying to store its outcome, and stores it when the data is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_running_attempt_waits_for_the_data_to_come_back() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("waiting");
    let server = RedisServer::start(folder.join("server"), &[]);
    let seen = Seen::default();
    let engine = node(&server.url(), &seen, 0).await;
    let held: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let (url, held) = (server.url(), Arc::new(Mutex::new(held)));
    let (address, dumped) = (url.clone(), Arc::clone(&held));
    let work = async move {
        let mut client = semel_test_support::RedisClient::connect(&address);
        let semel_test_support::RedisReply::Array(keys) = client.ask(&["KEYS", "*"]) else {
            panic!("no keys")
        };
        for key in keys {
            let key = key.bytes();
            let value = client.ask(&[&b"DUMP"[..], &key]).bytes();
            dumped.lock().expect("no panic").push((key, value));
        }
        client.ask(&["FLUSHALL"]);
        Ok::<_, Failed>("receipt".to_owned())
    };
    let running = tokio::spawn({
        let engine = engine.clone();
        async move { engine.run(intent(1), move |_| work).await }
    });
    while !seen.has("lost: ") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!seen.has("secrets"));
    let mut held = std::mem::take(&mut *held.lock().expect("no panic"));
    // A marker that is back says that everything else is.
    held.sort_by_key(|(key, _)| key.ends_with(b"identity"));
    for (key, value) in &held {
        server.client().ask(&[&b"RESTORE"[..], key, b"0", value]);
    }
    running.await.expect("no panic").expect("its outcome");
    let again =
        engine.run(intent(1), |_| async { Ok::<_, Failed>("twice".to_owned()) }).await.expect("stored");
    assert_eq!((again.value.as_str(), again.replayed), ("receipt", true));
    while !seen.has("intact") {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(engine.refuses_writes(), None);
}
