//! What is wrong with a store.

use crate::database::Database;
use crate::world::{Ran, Scratch, World, key, semel};
use semel::core::store::Clock;
use semel::core::time::Time;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

fn codes(ran: &Ran) -> Vec<(String, String)> {
    let report = ran.json();
    let findings = report["findings"].as_array().expect("findings");
    let word = |finding: &Value, name: &str| finding[name].as_str().expect("a word").to_owned();
    for finding in findings {
        assert!(!word(finding, "what").is_empty() && !word(finding, "mend").is_empty(), "{finding}");
    }
    findings.iter().map(|finding| (word(finding, "severity"), word(finding, "code"))).collect()
}

fn found(ran: &Ran, severity: &str, code: &str) {
    let codes = codes(ran);
    assert!(codes.contains(&(severity.to_owned(), code.to_owned())), "{severity} {code} is not in {codes:?}");
}

fn doctor(scratch: &Scratch, more: &[&str]) -> Ran {
    semel(&[&["doctor", "--json", "--store", &scratch.store()], more].concat())
}

/// An abandoned record to examine.
fn left() -> World {
    let mut world = World::new();
    assert_eq!(world.post("/charges", Some(&key(1)), "{}").status, 201);
    world.gateway.kill();
    world
}

fn raw(scratch: &Scratch) -> rusqlite::Connection {
    rusqlite::Connection::open(scratch.file()).expect("the file opens")
}

#[test]
fn a_healthy_store_in_use_has_no_findings() {
    let world = World::new();
    world.post("/charges", Some(&key(1)), "{}");
    let ran = doctor(&world.scratch, &[]).exits(0);
    assert_eq!(codes(&ran), []);
    let report = ran.json();
    assert_eq!((&report["records"]["SUCCEEDED"], &report["scanned"]), (&1.into(), &1.into()));
    assert_eq!(
        (&report["secret"]["phase"], &report["schema"]["have"]),
        (&"steady".into(), &report["schema"]["wanted"])
    );
    let told = semel(&["doctor", "--store", &world.scratch.store()]).exits(0).out;
    assert!(told.contains("1 SUCCEEDED") && told.ends_with("nothing found\n"), "{told}");
    assert_eq!(doctor(&world.scratch, &["--quick"]).exits(0).json()["scanned"], 0);
}

#[test]
fn pending_work_is_a_warning_not_an_error() {
    let mut world = World::with(&["--lease", "1s"]);
    let id = world.post("/doubt", Some(&key(1)), "{}");
    let hanging = crate::world::send(world.gateway.address, "/hang", Some(&key(2)), "{}");
    world.upstream.hanging(1);
    world.gateway.kill();
    drop(hanging);
    crate::world::until(|| doctor(&world.scratch, &[]).json()["deadLeases"] == 1);
    let ran = doctor(&world.scratch, &[]).exits(0);
    found(&ran, "warning", "unknown-outcomes");
    found(&ran, "warning", "dead-leases");
    assert_eq!(ran.json()["oldestUnknown"]["operationId"], id.id());
    let told = semel(&["doctor", "--store", &world.scratch.store()]).exits(0).out;
    assert!(told.contains("warning  unknown-outcomes") && told.contains("semel records resolve"), "{told}");
}

#[test]
fn a_missing_store_is_an_error_and_is_not_created() {
    let scratch = Scratch::new();
    found(&doctor(&scratch, &[]).exits(1), "error", "store-missing");
    assert!(!scratch.file().exists());
    found(&semel(&["doctor", "--json", "--store", "memory:"]).exits(1), "error", "store-not-here");
    semel(&["doctor", "--store", "nowhere"]).exits(2);
}

#[test]
fn a_newer_or_foreign_or_empty_schema_is_an_error_and_is_left_alone() {
    let world = left();
    raw(&world.scratch)
        .execute("UPDATE semel_meta SET value = 99 WHERE name = 'schema'", [])
        .expect("changed");
    let ran = doctor(&world.scratch, &[]).exits(1);
    found(&ran, "error", "schema-unfit");
    assert!(ran.out.contains("schema 99"), "{ran:?}");

    let scratch = Scratch::new();
    raw(&scratch).execute_batch("CREATE TABLE payments (id)").expect("a table");
    let before = std::fs::read(scratch.file()).expect("read");
    found(&doctor(&scratch, &[]).exits(1), "error", "schema-missing");
    assert_eq!(std::fs::read(scratch.file()).expect("read"), before);
}

#[test]
fn damage_is_an_error_wherever_it_is() {
    let world = left();
    raw(&world.scratch).execute("UPDATE semel_records SET entry = x'00'", []).expect("changed");
    let ran = doctor(&world.scratch, &[]).exits(1);
    found(&ran, "error", "records-unreadable");
    assert_eq!(ran.json()["unreadable"], 1);
    let told = semel(&["doctor", "--store", &world.scratch.store()]).exits(1).out;
    assert!(told.contains("error    records-unreadable"), "{told}");
    let listed = world.in_store(&["records", "list"]).exits(0).out;
    assert!(listed.contains("1 cannot be read"), "{listed}");

    let world = left();
    raw(&world.scratch).execute("UPDATE semel_counts SET rows = rows + 7", []).expect("changed");
    found(&doctor(&world.scratch, &[]).exits(1), "error", "file-damaged");

    let scratch = Scratch::new();
    scratch.write("semel.db", "dear diary, ".repeat(1000));
    found(&doctor(&scratch, &[]).exits(1), "error", "store-unreadable");
}

/// Wall time, off by so much.
struct Off {
    ahead: Duration,
    behind: Duration,
}

impl Clock for Off {
    fn now(&self) -> Time {
        semel::SystemClock.now() + self.ahead - self.behind
    }
}

/// A store on which an engine has done `work` by a clock that is wrong.
async fn written_by<F: Future<Output = ()>>(
    scratch: &Scratch,
    clock: Off,
    work: impl FnOnce(semel::Engine, semel::Intent) -> F,
) {
    let options = semel_sql::sqlite::Options::default().clock(Arc::new(clock));
    let store = Arc::new(semel_sql::sqlite::Store::open(scratch.file(), options).expect("opened"));
    let engine = semel::Engine::builder(store.clone()).build().await.expect("built");
    let scope = semel::core::scope::Scope::new(
        semel::core::scope::Identity::header("ada"),
        semel::core::scope::Operation::named("charge"),
    );
    let key = semel::core::key::Key::from_source("order:1234:charge").expect("a key");
    let policy = semel::core::policy::Policy::new(semel::core::policy::Class::External);
    let intent = semel::Intent::new(scope, key, policy, semel::payload::Raw::from(&b"{}"[..]));
    work(engine.clone(), intent).await;
    engine.shutdown(Duration::from_secs(1)).await;
    store.close().await;
}

#[test]
fn records_from_the_future_say_that_the_clock_is_wrong() {
    let scratch = Scratch::new();
    let ahead = Off { ahead: Duration::from_hours(2), behind: Duration::ZERO };
    tokio::runtime::Runtime::new().expect("threads").block_on(written_by(
        &scratch,
        ahead,
        async |engine, intent| {
            let work = |_| async { semel::Ended::from(semel::core::classify::Ending::InDoubt) };
            engine.execute(intent, work).await.expect("run");
        },
    ));
    found(&doctor(&scratch, &[]).exits(1), "error", "clock-behind");
}

#[test]
fn no_lease_is_called_dead_by_a_clock_that_is_not_trusted() {
    let scratch = Scratch::new();
    let behind = Off { ahead: Duration::ZERO, behind: Duration::from_hours(30 * 24) };
    tokio::runtime::Runtime::new().expect("threads").block_on(written_by(
        &scratch,
        behind,
        async |engine, intent| drop(engine.claim(&intent).await.expect("claimed")),
    ));
    let ran = doctor(&scratch, &[]).exits(1);
    found(&ran, "error", "clock-not-trusted");
    // Its lease ended a month ago by this clock, which may be the wrong one; no gateway marks it before the clock is confirmed.
    assert_eq!((&ran.json()["records"]["PROCESSING"], &ran.json()["deadLeases"]), (&1.into(), &0.into()));
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = left();
    let open = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(world.scratch.file(), open).expect("changed");
    found(&doctor(&world.scratch, &[]).exits(0), "warning", "file-open-to-others");
}

#[test]
fn sealed_answers_are_tried_with_the_keys_of_the_configuration() {
    let scratch = Scratch::new();
    let upstream = crate::upstream::Upstream::start();
    scratch.write("key-a", "11".repeat(32));
    scratch.write("key-b", "22".repeat(32));
    let config = |name: &str, sealing: &str| {
        let (store, upstream) = (scratch.store(), upstream.address);
        scratch.write(
            name,
            format!("[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n{sealing}"),
        )
    };
    let key = |name: &str, file: &str| {
        let file = scratch.path(file).display().to_string();
        format!("[[sealing.key]]\nname = \"{name}\"\nsecret = 'file:{file}'\n")
    };
    let right = config("right.toml", &key("a", "key-a"));
    let gateway = crate::world::Gateway::start(&["--config", &right, "--admin", "127.0.0.1:0"]);
    let reply = crate::world::post(gateway.address, "/charges", Some(&crate::world::key(1)), "{}");
    assert_eq!(reply.status, 201);

    found(&doctor(&scratch, &[]).exits(0), "notice", "answers-sealed");
    assert_eq!(
        codes(&semel(&["doctor", "--json", "--config", &right]).exits(0)),
        [],
        "the store is the file's"
    );
    let other = config("other.toml", &key("b", "key-b"));
    found(&doctor(&scratch, &["--config", &other]).exits(1), "error", "sealing-key-missing");
    let wrong = config("wrong.toml", &key("a", "key-b"));
    found(&doctor(&scratch, &["--config", &wrong]).exits(1), "error", "seals-broken");
    let none = config("none.toml", "");
    found(&doctor(&scratch, &["--config", &none]).exits(1), "error", "sealing-key-missing");
    let mistaken = config("mistaken.toml", "[nonsense]\n");
    found(&doctor(&scratch, &["--config", &mistaken]).exits(1), "error", "config-mistakes");
    let elsewhere = scratch.write("elsewhere.toml", "[store]\nurl = \"sqlite:elsewhere.db\"\n");
    found(&doctor(&scratch, &["--config", &elsewhere]), "warning", "config-of-another-store");

    // The same keys open answers for whoever asks the store, and seal what is put there.
    let show = ["records", "show", reply.id(), "--body", "--store", &scratch.store()];
    let shut = semel(&show).exits(0).out;
    assert!(shut.contains("cannot be opened here") && !shut.contains("charge 1"), "{shut}");
    let open = semel(&[&show[..], &["--config", &right]].concat()).exits(0).out;
    assert!(open.ends_with("charge 1\n"), "{open}");
    let doubted = crate::world::post(gateway.address, "/doubt", Some(&crate::world::key(2)), "{}");
    let secret = scratch.write("body", "do not read this");
    let resolve =
        ["records", "resolve", doubted.id(), "--outcome", "applied", "--reason", "r", "--status", "200"];
    let sealed = ["--body", &secret, "--store", &scratch.store(), "--config", &right];
    // Without the keys, nothing is stored unless `--unsealed` is given.
    let refused = semel(&[&resolve[..], &sealed[..4]].concat()).exits(2).err;
    assert!(refused.contains("--config FILE") && refused.contains("--unsealed"), "{refused}");
    semel(&[&resolve[..], &sealed, &["--unsealed"]].concat()).exits(2);
    semel(&[&resolve[..], &sealed[..2], &["--unsealed"]].concat()).exits(2);
    semel(&[&resolve[..], &sealed].concat()).exits(0);
    let replay = crate::world::post(gateway.address, "/doubt", Some(&crate::world::key(2)), "{}");
    assert_eq!(replay.body, "do not read this");
    let kept =
        [scratch.file(), scratch.path("semel.db-wal")].map(|file| std::fs::read(file).unwrap_or_default());
    let is_in = |bytes: &Vec<u8>| bytes.windows(16).any(|window| window == b"do not read this");
    assert!(!kept.iter().any(is_in), "it was stored as it is");
}

#[test]
fn answers_that_were_stored_before_they_were_to_be_sealed_are_warned_of() {
    let scratch = Scratch::new();
    let upstream = crate::upstream::Upstream::start();
    let secret = scratch.write("key-a", "11".repeat(32));
    let config = |name: &str, kept: &str| {
        let (store, upstream) = (scratch.store(), upstream.address);
        scratch.write(
            name,
            format!(
                "[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n[sealing]\nseals = \"chosen\"\n\
                 [[sealing.key]]\nname = \"a\"\nsecret = 'file:{secret}'\n\
                 [[operation]]\npath = \"/charges\"\nkept = \"{kept}\"\n"
            ),
        )
    };
    let (before, after) = (config("before.toml", "whole"), config("after.toml", "sealed"));
    let gateway = crate::world::Gateway::start(&["--config", &before, "--admin", "127.0.0.1:0"]);
    for (number, path) in [(1, "/charges"), (2, "/charges"), (3, "/others")] {
        assert_eq!(crate::world::post(gateway.address, path, Some(&key(number)), "{}").status, 201);
    }
    drop(gateway);
    assert_eq!(codes(&doctor(&scratch, &["--config", &before]).exits(0)), []);
    let warned = doctor(&scratch, &["--config", &after]).exits(0);
    found(&warned, "warning", "answers-unsealed");
    let told = warned.json()["findings"].to_string();
    assert!(told.contains("2 stored responses are stored unsealed"), "{told}");
    // What is stored from now on is no reason to warn.
    let gateway = crate::world::Gateway::start(&["--config", &after, "--admin", "127.0.0.1:0"]);
    assert_eq!(crate::world::post(gateway.address, "/charges", Some(&key(4)), "{}").status, 201);
    let warned = doctor(&scratch, &["--config", &after]).exits(0).json();
    assert!(warned["findings"].to_string().contains("2 stored responses"), "{warned}");
    assert_eq!(warned["sealed"], 1);
}

#[test]
fn a_configuration_with_mistakes_names_no_keys_and_no_store() {
    let scratch = Scratch::new();
    let upstream = crate::upstream::Upstream::start();
    scratch.write("key-a", "11".repeat(32));
    let config = |name: &str, more: &str| {
        let (store, upstream) = (scratch.store(), upstream.address);
        let secret = scratch.path("key-a").display().to_string();
        let text = format!(
            "[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n\
             [[sealing.key]]\nname = \"a\"\nsecret = 'file:{secret}'\n{more}"
        );
        scratch.write(name, text)
    };
    let gateway = crate::world::Gateway::start(&["--config", &config("right.toml", "")]);
    assert_eq!(crate::world::post(gateway.address, "/charges", Some(&key(1)), "{}").status, 201);

    let mistaken = config("mistaken.toml", "[nonsense]\n");
    let named = codes(&doctor(&scratch, &["--config", &mistaken]).exits(1));
    let expected = [("error", "config-mistakes"), ("notice", "answers-sealed")];
    assert_eq!(named, expected.map(|(severity, code)| (severity.to_owned(), code.to_owned())));
    let alone = semel(&["doctor", "--json", "--config", &mistaken]).exits(1);
    assert_eq!(codes(&alone), [("error".to_owned(), "config-mistakes".to_owned())]);
    assert_eq!(alone.json().get("store"), None);
    let told = semel(&["doctor", "--config", &mistaken]).exits(1).out;
    assert!(told.contains("none was checked") && !told.contains("semel.db"), "{told}");
}

fn calls(ran: &Ran) -> Vec<String> {
    let report = ran.json();
    let latency = report["latency"].as_array().expect("measured");
    for measured in latency {
        assert!(measured["medianUs"].as_u64() <= measured["slowestUs"].as_u64(), "{measured}");
    }
    latency.iter().map(|measured| measured["call"].as_str().expect("a name").to_owned()).collect()
}

const READS: [&str; 7] = ["read", "find", "page", "due", "markers", "count", "settings"];
const WRITES: [&str; 4] = ["claim", "swap", "remove", "set"];

/// A look changes nothing; whoever wants writes measured says so, and nothing of it stays.
#[test]
fn the_latency_of_each_call_is_measured_and_leaves_nothing() {
    let world = World::new();
    world.post("/charges", Some(&key(1)), "{}");
    let looked = doctor(&world.scratch, &["--quick"]).exits(0);
    assert_eq!(calls(&looked), READS);
    assert!(
        looked.json()["notMeasured"][0]["why"].as_str().is_some_and(|why| why.contains("--measure-writes"))
    );
    assert!(looked.json().get("clock").is_none(), "a file goes by this machine's clock");

    let measured = doctor(&world.scratch, &["--quick", "--measure-writes"]).exits(0);
    assert_eq!(calls(&measured), [&READS[..], &WRITES].concat());
    assert_eq!(
        (codes(&measured), measured.json()["notMeasured"].as_array().map(Vec::len)),
        (vec![], Some(0))
    );
    let raw = raw(&world.scratch);
    let count = |sql: &str| -> i64 { raw.query_row(sql, [], |row| row.get(0)).expect("a count") };
    assert_eq!(count("SELECT count(*) FROM semel_records"), 1);
    assert_eq!(count("SELECT count(*) FROM semel_settings WHERE name = 'doctor'"), 0);
    let told = semel(&["doctor", "--quick", "--store", &world.scratch.store()]).exits(0).out;
    assert!(told.contains("latency    read ") && told.contains("unmeasured claim, swap"), "{told}");
}

#[test]
fn a_server_is_measured_and_its_clock_compared() {
    let Some(database) = Database::start("cli-doctor") else { return };
    let store = database.store();
    semel(&["schema", "apply", "--store", &store]).exits(0);
    let measured = semel(&["doctor", "--json", "--quick", "--measure-writes", "--store", &store]).exits(0);
    assert_eq!(calls(&measured), [&READS[..], &WRITES].concat());
    let clock = &measured.json()["clock"];
    let (ahead, uncertainty) =
        (clock["aheadMs"].as_i64().expect("compared"), clock["uncertaintyMs"].as_i64().expect("told"));
    assert!(ahead.abs() <= uncertainty + 1, "both are this machine's: {clock}");
    assert_eq!(database.server.sql("SELECT count(*) FROM semel.records"), "0");
    assert_eq!(database.server.sql("SELECT count(*) FROM semel.settings"), "0");

    // A role that may look and not write.
    database.server.sql(
        "CREATE ROLE viewer LOGIN; GRANT USAGE ON SCHEMA semel TO viewer; GRANT SELECT ON ALL TABLES IN SCHEMA semel TO viewer",
    );
    let viewer = store.replace("semel@", "viewer@");
    let looked = semel(&["doctor", "--json", "--quick", "--measure-writes", "--store", &viewer]);
    found(&looked, "warning", "latency-unverified");
    assert_eq!(calls(&looked), READS);
}

/// A clock that is off by more than gateways allow for is told, with what it costs.
#[test]
fn a_server_with_another_time_is_reported() {
    let Some(database) = Database::start("cli-doctor-clock") else { return };
    let store = database.store();
    semel(&["schema", "apply", "--store", &store]).exits(0);
    database.server.sql(
        "CREATE OR REPLACE FUNCTION semel.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS \
         $$ SELECT pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint - 60000 $$",
    );
    let looked = semel(&["doctor", "--json", "--quick", "--store", &store]);
    found(&looked, "warning", "clock-difference");
    let ahead = looked.json()["clock"]["aheadMs"].as_i64().expect("compared");
    assert!((-61_000..-59_000).contains(&ahead), "{ahead}");
}
