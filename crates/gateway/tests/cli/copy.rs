//! Moving from one store to another.

use crate::database::Database;
use crate::upstream::Upstream;
use crate::world::{Gateway, Scratch, World, command, key, post, semel, until};
use semel::core::fingerprint::Fingerprint;
use semel::core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel::core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp};
use semel::core::policy::{Class, Policy};
use semel::core::record::{Record, Token};
use semel::core::store::{Change, Store as _, Written};
use semel::core::time::Time;
use std::process::Stdio;

fn copy(from: &str, to: &str, more: &[&str]) -> crate::world::RunResult {
    semel(&[&["records", "copy", "--from", from, "--to", to], more].concat())
}

fn gateway(store: &str, upstream: &Upstream) -> Gateway {
    Gateway::start(&["--store", store, "--upstream", &format!("http://{}", upstream.address)])
}

/// An abandoned record.
fn record(number: u64) -> (CommandId, Record) {
    static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
    let mut id = [0x5e; 32];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let id = CommandId::from_bytes(id);
    let command = Command {
        id,
        operation_id: OperationId::of(&id),
        key_hash: KeyHash::from_bytes([7; 32]),
        caller_hash: CallerHash::from_bytes([8; 32]),
        operation: "POST /charges".into(),
        policy: Policy::new(Class::External).into(),
        fingerprint: PAYLOAD,
        payload: &PAYLOAD,
        generation: 0,
    };
    let new_attempt =
        NewAttempt { token: Token::from_random(u128::from(number) + 1), begin: Begin::Processing };
    let stamp = Stamp::new(Time::from_millis(1_790_000_000_000), "a node", "");
    match machine::decide(Found::Nothing, &command, new_attempt, stamp) {
        Decision::Run(write) => (id, write.next),
        other => panic!("a command never seen is run: {other:?}"),
    }
}

/// Stores `count` records in a file.
fn fill(scratch: &Scratch, count: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = semel_sql::sqlite::Store::open(scratch.file(), semel_sql::sqlite::Options::default())
            .expect("opened");
        for first in (0..count).step_by(500) {
            let records: Vec<_> = (first..count.min(first + 500)).map(record).collect();
            let writes = records.iter().map(|(id, record)| store.write(*id, Change::Insert(record)));
            for written in futures_util::future::join_all(writes).await {
                assert!(matches!(written.expect("an answer"), Written::Done { .. }));
            }
        }
        store.close().await;
    });
}

/// Records that a gateway stored in a file are replayed by a gateway on PostgreSQL, and then by one on another file.
#[test]
fn outcomes_are_replayed_after_a_move_to_postgresql_and_back() {
    let Some(database) = Database::start("cli-copy") else { return };
    let mut world = World::new();
    let first = world.post("/charges", Some(&key(1)), "{}");
    assert_eq!(first.status, 201);
    assert_eq!(world.post("/busy", Some(&key(2)), "{}").status, 429);
    assert_ne!(world.post("/doubt", Some(&key(3)), "{}").status, 201);
    let (file, server) = (world.scratch.store(), database.store());

    let refused = copy(&file, &server, &[]).exits(4);
    assert!(refused.err.contains("the source is in use by"), "{refused:?}");
    world.gateway.kill();
    let copied = copy(&file, &server, &["--gateways-stopped", "--json"]).exits(0).json();
    assert_eq!((&copied["recordsTotal"], &copied["copiedBefore"]), (&3.into(), &0.into()), "{copied}");
    assert_eq!(copied["records"]["UNKNOWN"], 1, "{copied}");

    let calls = world.upstream.calls();
    let mut moved = gateway(&server, &world.upstream);
    let replayed = post(moved.address, "/charges", Some(&key(1)), "{}");
    assert_eq!((replayed.status, &replayed.body), (201, &first.body));
    assert_eq!((replayed.header("idempotency-replayed"), replayed.id()), (Some("true"), first.id()));
    assert_eq!(world.upstream.calls(), calls, "nothing was charged again");
    assert_eq!(post(moved.address, "/charges", Some(&key(4)), "{}").status, 201);
    moved.kill();

    let again = copy(&file, &server, &["--gateways-stopped"]).exits(4);
    assert!(again.err.contains("Choose an empty one"), "{again:?}");
    let back = Scratch::new();
    let ran = copy(&server, &back.store(), &["--gateways-stopped"]).exits(0);
    assert!(ran.out.contains("every record was read back and compared"), "{ran:?}");
    let calls = world.upstream.calls();
    let returned = gateway(&back.store(), &world.upstream);
    for (number, body) in [(1, Some(&first.body)), (4, None)] {
        let replayed = post(returned.address, "/charges", Some(&key(number)), "{}");
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"), "{replayed:?}");
        assert!(body.is_none_or(|body| *body == replayed.body), "{replayed:?}");
    }
    assert_eq!(world.upstream.calls(), calls, "nothing was charged again");
}

/// Rows with every kind of value. The sums stay empty.
const ROWS: &str = "INSERT INTO semel_inbox_marks VALUES ('billing', 'payments', 'a', x'00ff', 5), ('Billing', 'ü', 'b', x'01', 6); \
    INSERT INTO semel_operation_fences VALUES ('o-1', 9007199254740993, 1, x'', 7), ('o-2', 2, 0, NULL, 8); \
    INSERT INTO semel_business_references VALUES ('t', 'pay', 'INV-1', 'o-1', 9, NULL), ('t', 'pay', 'INV-2', 'o-2', 9, 10); \
    INSERT INTO semel_counter_operations VALUES ('paid', 'o-1', 0, -3, 0, 11);";

const TABLES: [(&str, u64); 5] = [
    ("inbox_marks", 2),
    ("operation_fences", 2),
    ("business_references", 2),
    ("counter_sums", 0),
    ("counter_operations", 1),
];

/// The rows of the tables in a file.
fn rows(scratch: &Scratch) -> Vec<Vec<rusqlite::types::Value>> {
    let file = rusqlite::Connection::open(scratch.file()).expect("it opens");
    let mut rows = Vec::new();
    for (table, _) in TABLES {
        let mut statement =
            file.prepare(&format!("SELECT * FROM semel_{table} ORDER BY 1, 2, 3")).expect("a table");
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get(at)).collect();
        rows.extend(statement.query_map([], row).expect("rows").map(|row| row.expect("a row")));
    }
    rows
}

#[test]
fn the_tables_of_applications_are_copied_too() {
    let Some(database) = Database::start("cli-copy-tables") else { return };
    let (mut world, back) = (World::new(), Scratch::new());
    world.gateway.shut_down();
    let scratch = &world.scratch;
    let (file, server) = (scratch.store(), database.store());
    rusqlite::Connection::open(scratch.file()).expect("it opens").execute_batch(ROWS).expect("rows");

    let copied = copy(&file, &server, &["--json"]).exits(0).json();
    for (table, count) in TABLES {
        let expected = serde_json::json!({ "rows": count, "copied": true });
        assert_eq!(copied["tables"][table], expected, "{copied}");
    }
    let done = database
        .server
        .sql("SELECT fence, is_done, result FROM semel.operation_fences ORDER BY operation_id");
    assert_eq!(done.trim(), "9007199254740993|t|\\x\n2|f|");
    let ran = copy(&server, &back.store(), &[]).exits(0);
    let line = |text: &str| ran.out.lines().any(|line| line.split_whitespace().eq(text.split(' ')));
    assert!(line("inbox_marks 2") && line("counter_sums 0"), "{ran:?}");
    let (counted, advised) = (ran.out.find("counter_sums"), ran.out.find("were copied too"));
    assert!(counted.is_some() && counted < advised, "{ran:?}");
    assert_eq!(rows(&back), rows(scratch));
}

/// A mark that was set anew after an interrupted copy must not be lost, and neither may the older one win.
#[test]
fn a_copy_into_other_rows_of_applications_is_refused() {
    let (mut world, other) = (World::new(), Scratch::new());
    world.gateway.shut_down();
    let scratch = &world.scratch;
    let (file, target) = (scratch.store(), other.store());
    semel(&["schema", "apply", "--store", &target]).exits(0);
    let open = |scratch: &Scratch| rusqlite::Connection::open(scratch.file()).expect("it opens");
    open(scratch).execute_batch(ROWS).expect("rows");
    open(&other)
        .execute_batch("INSERT INTO semel_operation_fences VALUES ('o-1', 3, 0, NULL, 7)")
        .expect("a row");
    let refused = copy(&file, &target, &[]).exits(1);
    assert!(refused.err.contains("different rows in operation_fences"), "{refused:?}");
    open(&other).execute_batch("DELETE FROM semel_operation_fences").expect("empty");
    copy(&file, &target, &[]).exits(0);
    assert_eq!(rows(&other), rows(scratch));
}

/// A gateway that runs on would charge what the copy does not know, and the other way round.
#[test]
fn a_running_gateway_is_noticed_although_its_end_was_confirmed() {
    let (world, other) = (World::new(), Scratch::new());
    assert_eq!(world.post("/charges", Some(&key(1)), "{}").status, 201);
    let refused = copy(&world.scratch.store(), &other.store(), &["--gateways-stopped"]).exits(4);
    assert!(refused.err.contains("the source is in use by"), "{refused:?}");
    let target = rusqlite::Connection::open(other.file()).expect("the file opens");
    let rows = target.query_row("SELECT count(*) FROM semel_records", [], |row| row.get::<_, i64>(0));
    assert_eq!(rows.expect("counted"), 0, "nothing was copied");
    // On an empty store, every key would run again.
    let store = other.store();
    let serve = ["serve", "--store", &store, "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"];
    let refused = semel(&serve).exits(1);
    assert!(refused.err.contains("unfinished copy"), "{refused:?}");
}

#[test]
fn a_copy_that_was_killed_is_completed_by_the_next() {
    let Some(database) = Database::start("cli-copy-kill") else { return };
    let mut world = World::new();
    assert_eq!(world.post("/charges", Some(&key(1)), "{}").status, 201);
    world.gateway.kill();
    fill(&world.scratch, 12_000);
    let before = std::fs::read(world.scratch.file()).expect("read");
    let (file, server) = (world.scratch.store(), database.store());
    let arguments = ["records", "copy", "--from", &file, "--to", &server, "--gateways-stopped"];
    let mut child =
        command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("semel starts");
    let count = || {
        database
            .server
            .try_sql("SELECT count(*) FROM semel.records WHERE version IS NOT NULL")
            .map_or(0, |text| text.trim().parse().unwrap_or(0))
    };
    until(|| count() > 300);
    child.kill().expect("killed");
    child.wait().expect("it has exited");
    let half: u64 = count();
    assert!(half < 12_001, "it was killed in the middle: {half}");

    let refused =
        semel(&["serve", "--store", &server, "--upstream", "http://127.0.0.1:1", "--listen", "127.0.0.1:0"])
            .exits(1);
    assert!(refused.err.contains("unfinished copy"), "{refused:?}");
    let found = semel(&["doctor", "--json", "--quick", "--store", &server]).exits(1);
    assert!(found.out.contains("copy-unfinished"), "{found:?}");
    let other = Scratch::new();
    semel(&["schema", "apply", "--store", &other.store()]).exits(0);
    let refused = copy(&other.store(), &server, &[]).exits(4);
    assert!(refused.err.contains("nothing to copy"), "{refused:?}");

    let done = copy(&file, &server, &["--gateways-stopped", "--json"]).exits(0).json();
    assert_eq!(done["recordsTotal"], 12_001, "{done}");
    assert!(done["copiedBefore"].as_u64().is_some_and(|count| count >= half), "{done}");
    assert_eq!(count(), 12_001);
    assert_eq!(std::fs::read(world.scratch.file()).expect("read"), before, "the source is only read");
    let verified = semel(&["doctor", "--json", "--store", &server]);
    assert!(
        !verified.out.contains("file-damaged") && !verified.out.contains("copy-unfinished"),
        "{verified:?}"
    );
}

#[test]
fn an_impossible_copy_is_refused_in_plain_words() {
    let (scratch, other) = (Scratch::new(), Scratch::new());
    let (store, target) = (scratch.store(), other.store());
    assert!(copy(&store, &target, &[]).exits(1).err.contains("does not exist"));
    assert!(!scratch.file().exists() && !other.file().exists(), "nothing was created");
    assert!(copy("memory:", &target, &[]).exits(2).err.contains("cannot be copied"));
    assert!(copy(&store, &store, &[]).exits(2).err.contains("same store"));
    assert!(copy(&store, &target, &["--store", &store]).exits(2).err.contains("--from and --to"));
    semel(&["records", "copy", "--from", &store]).exits(2);
}
