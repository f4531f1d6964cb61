//! The records are lost under running nodes: nothing that was acknowledged runs again.

use crate::server::{Schema, connect};
use semel::payload::Json;
use semel::{
    BuildError, Class, Engine, Event, Failed, Identity, Intent, Key, Observer, Operation, Policy, Scope,
    Settings,
};
use semel_core::id::CommandId;
use semel_core::machine::Unchanged;
use semel_core::store::{
    Backend as _, Change, Count, Filter, Kind, SECRET_SETTING, Severity, Store as _, Written,
};
use semel_sql::postgres::{Backend, Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::records::{claim_at, claimed, finished, id, is_done};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

const KEYS: usize = 20;
/// The command ID of the store's own row.
const OWN_ROW: [u8; 32] = *b"semel: does the store write now\xff";

/// How the records are lost. `S.` stands for the schema.
const LOSSES: [&str; 3] =
    ["TRUNCATE S.records", "DELETE FROM S.records", "DELETE FROM S.records WHERE version IS NULL"];

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<&'static str>>>);

impl Observer for Seen {
    fn observe(&self, event: &Event<'_>) {
        let name = match event {
            Event::StoreLost { .. } => "lost",
            Event::StoreIntact => "intact",
            Event::StoreRefuses { .. } => "refuses",
            Event::SecretsBehind { .. } => "secrets",
            _ => return,
        };
        self.0.lock().expect("no panic").push(name);
    }
}

/// A node without a cache, so that every answer comes from the store.
async fn node(schema: &Schema, seen: &Seen) -> Engine {
    try_node(schema, seen).await.expect("the store answers")
}

async fn try_node(schema: &Schema, seen: &Seen) -> Result<Engine, BuildError> {
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    let mut settings =
        Settings { cache_bytes_max: 0, finish_wait: Duration::from_millis(300), ..Settings::default() };
    settings.clock.heartbeat = Duration::from_millis(200);
    Engine::builder(Arc::new(store)).settings(settings).observer(seen.clone()).build().await
}

fn intent(number: usize) -> Intent {
    let scope = Scope::new(Identity::api_key("shop"), Operation::named("charge"));
    let key = Key::from_source(&format!("order-number-{number}")).expect("a key");
    Intent::new(scope, key, Policy::new(Class::External), Json::of(&500).expect("a payload"))
}

/// Whether the outcome was replayed.
async fn charge(node: &Engine, number: usize, charges: &Arc<Vec<AtomicU32>>) -> Result<bool, String> {
    let charges = Arc::clone(charges);
    let ran = node.run(intent(number), move |_| async move {
        charges[number].fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failed>(format!("receipt {number}"))
    });
    ran.await.map(|done| done.replayed).map_err(|error| error.to_string())
}

fn charges(keys: usize) -> Arc<Vec<AtomicU32>> {
    Arc::new((0..keys).map(|_| AtomicU32::new(0)).collect())
}

fn most(charges: &[AtomicU32]) -> u32 {
    charges.iter().map(|charged| charged.load(Ordering::SeqCst)).max().unwrap_or(0)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.expect(what);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_key_runs_again_until_the_loss_is_accepted() {
    for loss in LOSSES {
        let (schema, client) = (Schema::new(), connect().await);
        let (seen, other_seen, charges) = (Seen::default(), Seen::default(), charges(KEYS + 2));
        let (first, second) = (node(&schema, &seen).await, node(&schema, &other_seen).await);
        for number in 0..KEYS {
            assert_eq!(charge(&first, number, &charges).await, Ok(false));
        }
        assert_eq!(Backend.accept_loss(&schema.address(), "nothing").await.expect("an answer").parts, 0);
        client.batch_execute(&loss.replace("S.", &format!("{}.", schema.name))).await.expect("lost");
        // Nodes insert and remove markers of their own, to see whether the store takes writes.
        let rows = format!("SELECT count(*) FROM {}.records WHERE state <> 7", schema.name);
        let rows = async || client.query_one(&rows, &[]).await.expect("counted").get::<_, i64>(0);
        let left = rows().await;
        for node in [&second, &first] {
            let refused = charge(node, KEYS, &charges).await.expect_err("a new key is not claimed");
            assert!(refused.contains("lost data"), "{loss}: {refused}");
            for number in 0..KEYS {
                let again = charge(node, number, &charges).await;
                let is_replayed = left > 0 && again == Ok(true);
                assert!(is_replayed || again.is_err_and(|refused| refused.contains("lost data")), "{loss}");
            }
            assert_eq!(node.refuses_writes().map(|refusal| refusal.kind), Some(Kind::DataLost), "{loss}");
        }
        // Several heartbeats: none hides the loss, and it is reported once.
        tokio::time::sleep(Duration::from_millis(800)).await;
        for seen in [&seen, &other_seen] {
            assert_eq!(*seen.0.lock().expect("no panic"), ["lost"], "{loss}");
        }
        let refused = try_node(&schema, &Seen::default()).await.err().expect("no node starts").to_string();
        assert!(refused.contains("lost data"), "{loss}: {refused}");
        assert_eq!((rows().await, most(&charges)), (left, 1), "{loss}: nothing was written");

        let accepted = Backend.accept_loss(&schema.address(), "2026 by ada: tested").await.expect("accepted");
        assert_eq!((accepted.parts, accepted.of, accepted.settings, accepted.secret), (1, 1, false, false));
        for node in [&first, &second] {
            until("the node goes on without a restart", || node.refuses_writes().is_none()).await;
        }
        assert_eq!(charge(&first, KEYS, &charges).await, Ok(false));
        assert_eq!(charge(&second, KEYS, &charges).await, Ok(true));
        let hazards = first.store().hazards().await.expect("looked at");
        let accepted = hazards.iter().find(|hazard| hazard.code == "postgres-loss-accepted");
        let notice = accepted.expect("who, and why");
        assert!(notice.what.contains("2026 by ada: tested"), "{}", notice.what);
        assert_eq!(Backend.accept_loss(&schema.address(), "again").await.expect("an answer").parts, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_that_needs_lost_records_reports_the_loss() {
    for loss in LOSSES {
        let schema = Schema::new();
        let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
        store.check().await.expect("nothing is lost");
        let sql = loss.replace("S.", &format!("{}.", schema.name));
        connect().await.batch_execute(&sql).await.expect("lost");
        let claim = claimed(900);
        let done = finished(&claim, "paid");
        let refusals = [
            store.write(id(900), Change::Insert(&claim)).await.expect_err("insert"),
            store.write(id(900), Change::Replace(Unchanged::of(&claim), &done)).await.expect_err("replace"),
            store.write(id(900), Change::Remove(Unchanged::of(&done))).await.expect_err("remove"),
            store.write(id(900), Change::InsertMarker).await.expect_err("insert marker"),
            store.write(id(900), Change::RemoveMarker).await.expect_err("remove marker"),
            store.get(id(900)).await.expect_err("get"),
            store.find(claim.operation_id()).await.expect_err("find"),
            store.check().await.expect_err("check"),
        ];
        for error in refusals {
            assert_eq!(error.kind(), Kind::DataLost, "{loss}: {error}");
            assert!(error.is_retryable() && !error.is_ambiguous(), "a finish continues to try: {error}");
            assert!(error.to_string().contains("--accept-loss"), "{error}");
        }
        let hazards = store.hazards().await.expect("looked at");
        let found: Vec<_> = hazards.iter().map(|hazard| (hazard.severity, hazard.code)).collect();
        assert!(found.contains(&(Severity::Danger, "postgres-data-lost")), "{found:?}");
        let refused = Backend.accept_loss(&schema.address(), "no gateway has used it").await;
        assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::Unfit), "the secret is lost too");
        drop(store.set(SECRET_SETTING, None, Some(b"value")).await.expect("an answer"));
        Backend.accept_loss(&schema.address(), "tested").await.expect("accepted");
        store.check().await.expect("it is complete again");
        assert!(is_done(&store.write(id(900), Change::Insert(&claim)).await.expect("an answer")));
    }
}

/// Eight callers of two nodes repeat keys that were acknowledged, and use new ones, while the records are lost.
#[tokio::test(flavor = "multi_thread")]
async fn no_key_runs_twice_although_many_are_written_during_the_loss() {
    const CALLERS: usize = 8;
    const KEYS_EACH: usize = 4_000;
    for loss in LOSSES {
        let schema = Schema::new();
        let charges = charges(CALLERS * KEYS_EACH);
        let nodes = [node(&schema, &Seen::default()).await, node(&schema, &Seen::default()).await];
        let (is_over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (nodes, charges) = (nodes.clone(), Arc::clone(&charges));
            let (is_over, acknowledged) = (Arc::clone(&is_over), Arc::clone(&acknowledged));
            callers.spawn(async move {
                let (mut used, mut refused) = (0, 0);
                while !is_over.load(Ordering::SeqCst) && used < KEYS_EACH {
                    let first = caller * KEYS_EACH;
                    match charge(&nodes[used % 2], first + used, &charges).await {
                        Ok(_) => {
                            acknowledged.fetch_add(1, Ordering::SeqCst);
                        }
                        Err(_) => refused += 1,
                    }
                    // The same on the other node, and one from long ago.
                    for again in [used, used / 2] {
                        drop(charge(&nodes[(used + 1) % 2], first + again, &charges).await);
                    }
                    used += 1;
                }
                refused
            });
        }
        until("keys are acknowledged", || acknowledged.load(Ordering::SeqCst) > 100).await;
        let sql = loss.replace("S.", &format!("{}.", schema.name));
        connect().await.batch_execute(&sql).await.expect("lost");
        tokio::time::sleep(Duration::from_secs(1)).await;
        is_over.store(true, Ordering::SeqCst);
        let refused: usize = callers.join_all().await.into_iter().sum();
        assert!(refused > 0, "{loss}: no key was refused");
        assert_eq!(most(&charges), 1, "{loss}: a key ran twice");
    }
}

async fn connect_to(server: &PostgresServer) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.admin_url(), NoTls).await.expect("connected");
    tokio::spawn(connection);
    client
}

/// A claim waits for rows that are being deleted, and sees nothing of them when it continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_waited_for_the_deletion_is_refused() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "loss-waiting");
    let server = PostgresServer::start(folder.join("data"));
    for (number, level) in (1..).zip(["read committed", "repeatable read", "serializable"]) {
        server.sql(&format!("ALTER ROLE semel SET default_transaction_isolation = '{level}'"));
        let url = format!("{}?schema=s{number}", server.url());
        let store = Arc::new(Store::open(&url, Options::default()).await.expect("the store opens"));
        assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
        let (client, other) = (connect_to(&server).await, connect_to(&server).await);
        client.batch_execute(&format!("BEGIN; DELETE FROM s{number}.records")).await.expect("deleted");
        let claiming = Arc::clone(&store);
        let again =
            tokio::spawn(async move { claiming.write(id(1), Change::Insert(&claim_at(1, 77, 1))).await });
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        while other.query(waiting, &[]).await.expect("an answer").is_empty() {
            tokio::task::yield_now().await;
        }
        client.batch_execute("COMMIT").await.expect("committed");
        let refused = again.await.expect("no panic").expect_err("it was acknowledged before");
        // At the higher levels, it may be refused as a conflict between the two.
        assert!(!refused.is_ambiguous(), "{level}: {refused}");
        let refused = store.write(id(1), Change::Insert(&claimed(1))).await.expect_err("nor a later one");
        assert_eq!(refused.kind(), Kind::DataLost, "{level}: {refused}");
        assert_eq!(server.sql(&format!("SELECT count(*) FROM s{number}.records")).trim(), "0", "{level}");
    }
}

/// A store of the release before: the tables of schema 3, with a record.
async fn older_store(schema: &Schema) {
    let (newer, client) = (Schema::new(), connect().await);
    let store = Store::open(&newer.url_with(""), Options::default()).await.expect("the store opens");
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    let name = &schema.name;
    client.batch_execute(&format!("CREATE SCHEMA {name}")).await.expect("created");
    for step in &Backend.schema_steps()[..3] {
        client.batch_execute(&step.replace("semel.", &format!("{name}."))).await.expect("applied");
    }
    client
        .batch_execute(&format!(
            "INSERT INTO {name}.meta VALUES ('schema', 3); \
             INSERT INTO {name}.records SELECT * FROM {}.records WHERE state <> 7",
            newer.name
        ))
        .await
        .expect("filled");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_of_an_earlier_version_notices_a_loss_after_the_upgrade() {
    let schema = Schema::new();
    older_store(&schema).await;
    let inspected = Backend.inspect(&schema.address()).await.expect("opened");
    let hazards = inspected.hazards().await.expect("looked at");
    assert!(hazards.iter().all(|hazard| hazard.code != "postgres-data-lost"), "it has no such row yet");
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("it is upgraded");
    store.check().await.expect("nothing is lost");
    assert!(store.get(id(1)).await.expect("an answer").record().is_some());
    let inspected = Backend.inspect(&schema.address()).await.expect("opened");
    assert_eq!(inspected.verify().await.expect("read"), Vec::<String>::new());
    let client = connect().await;
    client.batch_execute(&format!("TRUNCATE {}.records", schema.name)).await.expect("emptied");
    let refused = store.write(id(1), Change::Insert(&claimed(1))).await.expect_err("it was acknowledged");
    assert_eq!(refused.kind(), Kind::DataLost, "{refused}");
    // A node that starts writes no such row again.
    let started = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    assert_eq!(started.check().await.map_err(|error| error.kind()), Err(Kind::DataLost));
}

/// The store's own row is in no list and no count, also not in those of an older node beside a newer one, whose statements
/// leave out the state 7. That node may try to remove it, because it lists such entries at the end of a rotation.
#[tokio::test(flavor = "multi_thread")]
async fn the_stores_own_row_is_hidden_and_stays() {
    let schema = Schema::new();
    older_store(&schema).await;
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("it is upgraded");
    let count = async |what| store.count(what, 1_000).await.expect("counted").count;
    assert_eq!((count(Count::Records).await, count(Count::Markers).await), (1, 0));
    assert_eq!(store.markers(None, 10).await.expect("a page").items, []);
    assert_eq!(store.page(&Filter::default(), None, 10).await.expect("a page").items.len(), 1);
    assert_eq!(store.tally(None, None, 10).await.expect("counted").counts.len(), 1);
    let older = format!(
        "SELECT count(*) FILTER (WHERE state <> 7), count(*) FILTER (WHERE due_at IS NOT NULL), count(*) FROM {}.records",
        schema.name
    );
    let row = connect().await.query_one(&older, &[]).await.expect("counted");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (1, 1, 2));

    let own = CommandId::from_bytes(OWN_ROW);
    let removed = store.write(own, Change::RemoveMarker).await.expect("an answer");
    assert!(matches!(removed, Written::Refused(_)), "{removed:?}");
    store.check().await.expect("it is still there");
}
