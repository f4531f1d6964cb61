//! How the tables are created, and which are refused.

use crate::server::{Schema, connect};
use semel_core::store::{Backend as _, Change, Kind, OpenOptions, Severity, Store as _};
use semel_sql::postgres::{Backend, Options, Store};
use semel_testkit::records::{claimed, id, is_done};
use tokio::task::JoinSet;

async fn refusal(schema: &Schema) -> String {
    let error = Store::open(&schema.url_with(""), Options::default()).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unfit, "{error}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_start_at_the_same_time_create_the_tables_once() {
    let schema = Schema::new();
    let mut opening = JoinSet::new();
    for _ in 0..6 {
        let url = schema.url_with("");
        opening.spawn(async move { Store::open(&url, Options::default().connections(2)).await });
    }
    let mut stores = Vec::new();
    while let Some(opened) = opening.join_next().await {
        stores.push(opened.expect("no panic").expect("the store opens"));
    }
    assert!(is_done(&stores[0].write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    for store in &stores {
        assert!(store.get(id(1)).await.expect("an answer").record().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_exists_as_soon_as_its_tables_do() {
    let schema = Schema::new();
    let address = schema.address();
    assert!(!Backend.exists(&address).await.expect("looked"));
    Backend.open(&address, &OpenOptions::default()).await.expect("opened").close().await;
    assert!(Backend.exists(&address).await.expect("looked"));
    let inspected = Backend.inspect(&address).await.expect("opened");
    assert_eq!(inspected.verify().await.expect("read"), Vec::<String>::new());
    let version = inspected.schema().await.expect("read");
    assert_eq!(version.have, version.wanted);
    assert!(inspected.size().data_bytes.is_some_and(|bytes| bytes > 0));
    let refused = inspected.write(id(1), Change::Insert(&claimed(1))).await.expect_err("refused");
    assert_eq!(refused.kind(), Kind::ReadOnly);
}

#[tokio::test(flavor = "multi_thread")]
async fn newer_and_foreign_tables_are_left_alone() {
    let schema = Schema::new();
    Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens").close().await;
    let client = connect().await;
    let set = |to: i64| format!("UPDATE {}.meta SET value = {to}", schema.name);
    client.batch_execute(&set(99)).await.expect("changed");
    assert!(refusal(&schema).await.contains("upgrade this one"));
    client.batch_execute(&set(-1)).await.expect("changed");
    assert!(refusal(&schema).await.contains("changed by hand"));
    client.batch_execute(&format!("DROP TABLE {}.meta", schema.name)).await.expect("dropped");
    assert!(refusal(&schema).await.contains("were not made by this software"));
}

/// Each of these would break the guarantee or every write; the server notices none.
#[tokio::test(flavor = "multi_thread")]
async fn manually_changed_tables_are_refused_with_the_difference() {
    let client = connect().await;
    for (change, undo, named) in [
        (
            "ALTER TABLE S.records DROP CONSTRAINT records_pkey",
            "ALTER TABLE S.records ADD CONSTRAINT records_pkey PRIMARY KEY (operation_id)",
            "records.operation_id is no longer a primary key",
        ),
        (
            "ALTER TABLE S.records ALTER token DROP NOT NULL",
            "ALTER TABLE S.records ALTER token SET NOT NULL",
            "the column records.token may be null",
        ),
        (
            "ALTER TABLE S.records ALTER state TYPE integer",
            "ALTER TABLE S.records ALTER state TYPE smallint",
            "the column records.state is of type integer, not smallint",
        ),
        (
            "ALTER TABLE S.records RENAME digest TO checksum",
            "ALTER TABLE S.records RENAME checksum TO digest",
            "the column records.digest is missing",
        ),
        (
            "ALTER TABLE S.records ADD note text NOT NULL DEFAULT ''; ALTER TABLE S.records ALTER note DROP DEFAULT",
            "ALTER TABLE S.records DROP note",
            "the added column records.note must not be null",
        ),
        (
            "ALTER FUNCTION S.set(text, bytea, bytea) SET synchronous_commit = off",
            "ALTER FUNCTION S.set(text, bytea, bytea) RESET ALL",
            "the function set has its own settings",
        ),
        (
            "CREATE OR REPLACE FUNCTION S.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT 1::bigint'",
            "",
            "the function now_ms has another body",
        ),
    ] {
        let schema = Schema::new();
        Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens").close().await;
        let run = |sql: &str| sql.replace("S.", &format!("{}.", schema.name));
        client.batch_execute(&run(change)).await.expect("changed");
        let text = refusal(&schema).await;
        assert!(text.contains(named) && text.contains("semel schema print"), "{change}: {text}");
        let inspected = Backend.inspect(&schema.address()).await.expect("opened for reading");
        let findings = inspected.verify().await.unwrap_or_else(|error| vec![error.to_string()]);
        assert!(
            findings.iter().any(|line| line.contains(named) || line.contains("does not exist")),
            "{findings:?}"
        );
        if !undo.is_empty() {
            client.batch_execute(&run(undo)).await.expect("undone");
            let opened = Store::open(&schema.url_with(""), Options::default()).await;
            opened.expect("sound again").close().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_triggers_on_the_tables_are_a_hazard() {
    let schema = Schema::new();
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    let codes = async || -> Vec<_> {
        let hazards = store.hazards().await.expect("looked");
        hazards
            .into_iter()
            .filter(|hazard| hazard.code.ends_with("trigger") || hazard.code.ends_with("index"))
            .collect()
    };
    assert_eq!(codes().await, []);
    let name = &schema.name;
    let client = connect().await;
    client
        .batch_execute(&format!(
            "CREATE FUNCTION {name}.dropping() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
             CREATE TRIGGER audit BEFORE INSERT ON {name}.records FOR EACH ROW EXECUTE FUNCTION {name}.dropping(); \
             CREATE RULE silence AS ON DELETE TO {name}.settings DO INSTEAD NOTHING; \
             ALTER TABLE {name}.settings ENABLE ROW LEVEL SECURITY; DROP INDEX {name}.records_due"
        ))
        .await
        .expect("changed");
    let found = codes().await;
    let problems: Vec<_> = found.iter().map(|hazard| (hazard.severity, hazard.what.as_str())).collect();
    let [(Severity::Danger, hung), (Severity::Notice, missing)] = problems[..] else { panic!("{found:?}") };
    assert!(
        hung.starts_with(
            "row security on settings, the rule silence on settings, the trigger audit on records can"
        ),
        "{hung}"
    );
    assert!(missing.starts_with("the index records_due is missing"), "{missing}");
}

/// Manual changes are found, and reported with the record.
#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_manual_changes() {
    let schema = Schema::new();
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    for number in 1..=4 {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    let inspected = Backend.inspect(&schema.address()).await.expect("opened");
    assert_eq!(inspected.verify().await.expect("read"), Vec::<String>::new());
    let client = connect().await;
    for (number, change) in
        [(1, "entry = '\\x00'"), (2, "state = 2"), (3, "command_id = decode(repeat('00', 32), 'hex')")]
    {
        let sql = format!("UPDATE {}.records SET {change} WHERE command_id = $1", schema.name);
        let changed = client.execute(&sql, &[&&id(number).as_bytes()[..]]).await.expect("changed");
        assert_eq!(changed, 1);
    }
    let findings = inspected.verify().await.expect("read");
    for (number, expected) in
        [(1, "changed without its digest"), (1, "cannot be read"), (2, "columns"), (3, "does not follow")]
    {
        let operation_id = semel_core::id::OperationId::of(&id(number)).to_string();
        let is_reported = |line: &String| line.contains(&operation_id) && line.contains(expected);
        assert!(findings.iter().any(is_reported), "{operation_id} {expected}: {findings:?}");
    }
    assert_eq!(findings.len(), 4, "{findings:?}");
}
