//! What is wrong with a store.

use crate::database::Database;
use crate::world::{RunResult, Scratch, World, key, semel};
use semel::core::store::Clock;
use semel::core::time::Time;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

fn codes(ran: &RunResult) -> Vec<(String, String)> {
    let report = ran.json();
    let findings = report["findings"].as_array().expect("findings");
    let member = |finding: &Value, name: &str| finding[name].as_str().expect("a string").to_owned();
    for finding in findings {
        assert!(!member(finding, "what").is_empty() && !member(finding, "fix").is_empty(), "{finding}");
    }
    findings.iter().map(|finding| (member(finding, "severity"), member(finding, "code"))).collect()
}

fn found(ran: &RunResult, severity: &str, code: &str) {
    let codes = codes(ran);
    assert!(codes.contains(&(severity.to_owned(), code.to_owned())), "{severity} {code} is not in {codes:?}");
}

fn doctor(scratch: &Scratch, more: &[&str]) -> RunResult {
    semel(&[&["doctor", "--json", "--store", &scratch.store()], more].concat())
}

/// An abandoned record to examine.
fn world_after_kill() -> World {
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
    let output = semel(&["doctor", "--store", &world.scratch.store()]).exits(0).out;
    assert!(output.contains("1 SUCCEEDED") && output.ends_with("nothing found\n"), "{output}");
    assert_eq!(doctor(&world.scratch, &["--quick"]).exits(0).json()["scanned"], 0);
}

#[test]
fn a_server_that_cannot_be_reached_is_not_a_file() {
    for store in ["redis://127.0.0.1:1", "postgres://semel@127.0.0.1:1/payments"] {
        let ran = semel(&["doctor", "--json", "--store", store]).exits(1);
        found(&ran, "error", "store-unreadable");
        let fix = ran.json()["findings"][0]["fix"].as_str().expect("a fix").to_owned();
        assert!(
            fix.contains("server runs") && !fix.contains("path") && !fix.contains("schema apply"),
            "{fix}"
        );
    }
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
    let output = semel(&["doctor", "--store", &world.scratch.store()]).exits(0).out;
    assert!(
        output.contains("warning  unknown-outcomes") && output.contains("semel records resolve"),
        "{output}"
    );
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
fn a_newer_foreign_or_empty_schema_is_left_alone() {
    let world = world_after_kill();
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
    let world = world_after_kill();
    raw(&world.scratch).execute("UPDATE semel_records SET entry = x'00'", []).expect("changed");
    let ran = doctor(&world.scratch, &[]).exits(1);
    found(&ran, "error", "records-unreadable");
    assert_eq!(ran.json()["unreadable"], 1);
    let output = semel(&["doctor", "--store", &world.scratch.store()]).exits(1).out;
    assert!(output.contains("error    records-unreadable"), "{output}");
    let listed = world.in_store(&["records", "list"]).exits(0).out;
    assert!(listed.contains("1 cannot be read"), "{listed}");

    let world = world_after_kill();
    raw(&world.scratch).execute("UPDATE semel_counts SET rows = rows + 7", []).expect("changed");
    found(&doctor(&world.scratch, &[]).exits(1), "error", "file-damaged");

    let scratch = Scratch::new();
    scratch.write("semel.db", "dear diary, ".repeat(1000));
    found(&doctor(&scratch, &[]).exits(1), "error", "store-unreadable");
}

/// A wall clock that is wrong by a fixed offset.
struct OffsetClock {
    ahead: Duration,
    behind: Duration,
}

impl Clock for OffsetClock {
    fn now(&self) -> Time {
        semel::SystemClock.now() + self.ahead - self.behind
    }
}

/// A store on which an engine did `work` under a wrong clock.
async fn written_by<F: Future<Output = ()>>(
    scratch: &Scratch,
    clock: OffsetClock,
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
    let ahead = OffsetClock { ahead: Duration::from_hours(2), behind: Duration::ZERO };
    tokio::runtime::Runtime::new().expect("threads").block_on(written_by(
        &scratch,
        ahead,
        async |engine, intent| {
            let work = |_| async { semel::WorkResult::from(semel::core::classify::Ending::InDoubt) };
            drop(engine.execute(intent, work).await.expect("run"));
        },
    ));
    found(&doctor(&scratch, &[]).exits(1), "error", "clock-behind");
}

#[test]
fn an_untrusted_clock_declares_no_lease_dead() {
    let scratch = Scratch::new();
    let behind = OffsetClock { ahead: Duration::ZERO, behind: Duration::from_hours(30 * 24) };
    tokio::runtime::Runtime::new().expect("threads").block_on(written_by(
        &scratch,
        behind,
        async |engine, intent| drop(engine.claim(&intent).await.expect("claimed")),
    ));
    let ran = doctor(&scratch, &[]).exits(1);
    found(&ran, "error", "clock-not-trusted");
    // By this clock the lease expired a month ago, but the clock may be wrong. No gateway acts on it until it is
    // confirmed.
    assert_eq!((&ran.json()["records"]["PROCESSING"], &ran.json()["deadLeases"]), (&1.into(), &0.into()));
}

#[cfg(unix)]
#[test]
fn a_file_that_others_can_read_is_warned_of() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = world_after_kill();
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
        "the store comes from the configuration file"
    );
    let other = config("other.toml", &key("b", "key-b"));
    found(&doctor(&scratch, &["--config", &other]).exits(1), "error", "sealing-key-missing");
    let wrong = config("wrong.toml", &key("a", "key-b"));
    found(&doctor(&scratch, &["--config", &wrong]).exits(1), "error", "seals-broken");
    let none = config("none.toml", "");
    found(&doctor(&scratch, &["--config", &none]).exits(1), "error", "sealing-key-missing");
    let mistaken = config("mistaken.toml", "[nonsense]\n");
    found(&doctor(&scratch, &["--config", &mistaken]).exits(1), "error", "config-mistakes");
    let other_store = scratch.write("elsewhere.toml", "[store]\nurl = \"sqlite:elsewhere.db\"\n");
    found(&doctor(&scratch, &["--config", &other_store]), "warning", "config-of-another-store");

    // With the same keys, commands on the store open stored responses and seal new ones.
    let show = ["records", "show", reply.id(), "--body", "--store", &scratch.store()];
    for more in [&[][..], &["--json"]] {
        let denied = semel(&[&show[..], more].concat()).exits(1);
        assert!(
            denied.err.contains("is sealed and was not opened") && denied.err.contains("--config FILE"),
            "{denied:?}"
        );
        assert!(
            denied.out.contains(reply.id()) && !denied.out.contains("charge 1"),
            "the rest is shown: {denied:?}"
        );
    }
    let without = semel(&["records", "show", reply.id(), "--store", &scratch.store()]).exits(0).out;
    assert!(without.contains("201, stored sealed, and no key here opens it"), "{without}");
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
    assert!(!kept.iter().any(is_in), "it was stored unsealed");
}

#[test]
fn responses_stored_before_sealing_cause_a_warning() {
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
    let findings = warned.json()["findings"].to_string();
    assert!(findings.contains("2 stored responses are stored unsealed"), "{findings}");
    // Responses that are stored from now on are sealed, so they cause no warning.
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
    let report = semel(&["doctor", "--json", "--config", &mistaken]).exits(1);
    assert_eq!(codes(&report), [("error".to_owned(), "config-mistakes".to_owned())]);
    assert_eq!(report.json().get("store"), None);
    let output = semel(&["doctor", "--config", &mistaken]).exits(1).out;
    assert!(output.contains("none was checked") && !output.contains("semel.db"), "{output}");
}

fn calls(ran: &RunResult) -> Vec<String> {
    let report = ran.json();
    let latency = report["latency"].as_array().expect("measured");
    for measured in latency {
        assert!(measured["medianUs"].as_u64() <= measured["slowestUs"].as_u64(), "{measured}");
    }
    latency.iter().map(|measured| measured["call"].as_str().expect("a name").to_owned()).collect()
}

const READS: [&str; 7] = ["read", "find", "page", "due", "markers", "count", "settings"];
const WRITES: [&str; 4] = ["claim", "swap", "remove", "set"];

/// Reads change nothing. Writes are measured only on request, and leave nothing behind.
#[test]
fn the_latency_of_each_call_is_measured_and_leaves_nothing() {
    let world = World::new();
    world.post("/charges", Some(&key(1)), "{}");
    let report = doctor(&world.scratch, &["--quick"]).exits(0);
    assert_eq!(calls(&report), READS);
    assert!(
        report.json()["notMeasured"][0]["why"].as_str().is_some_and(|why| why.contains("--measure-writes"))
    );
    assert!(report.json().get("clock").is_none(), "a file store has no clock of its own");

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
    let output = semel(&["doctor", "--quick", "--store", &world.scratch.store()]).exits(0).out;
    assert!(output.contains("latency    read ") && output.contains("unmeasured claim, swap"), "{output}");
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
        (clock["aheadMs"].as_i64().expect("compared"), clock["uncertaintyMs"].as_i64().expect("reported"));
    assert!(ahead.abs() <= uncertainty + 1, "both clocks are this machine's: {clock}");
    assert_eq!(database.server.sql("SELECT count(*) FROM semel.records WHERE version IS NOT NULL"), "0");
    assert_eq!(database.server.sql("SELECT count(*) FROM semel.settings"), "0");

    // A role that can read but not write.
    database.server.sql(
        "CREATE ROLE viewer LOGIN; GRANT USAGE ON SCHEMA semel TO viewer; GRANT SELECT ON ALL TABLES IN SCHEMA semel TO viewer",
    );
    let viewer = store.replace("semel@", "viewer@");
    let report = semel(&["doctor", "--json", "--quick", "--measure-writes", "--store", &viewer]);
    found(&report, "warning", "latency-unverified");
    assert_eq!(calls(&report), READS);
}

/// A clock that is off by more than the allowed skew is reported with its consequences.
#[test]
fn a_server_with_another_time_is_reported() {
    let Some(database) = Database::start("cli-doctor-clock") else { return };
    let store = database.store();
    semel(&["schema", "apply", "--store", &store]).exits(0);
    database.server.sql(
        "CREATE OR REPLACE FUNCTION semel.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS \
         $$ SELECT pg_catalog.floor(EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000)::bigint - 60000 $$",
    );
    let report = semel(&["doctor", "--json", "--quick", "--store", &store]);
    found(&report, "warning", "clock-difference");
    let ahead = report.json()["clock"]["aheadMs"].as_i64().expect("compared");
    assert!((-61_000..-59_000).contains(&ahead), "{ahead}");
}
