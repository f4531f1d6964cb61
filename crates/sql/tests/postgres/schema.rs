//! How the tables come to be, and which are refused.

use crate::records::{claimed, id, is_done};
use crate::server::{Schema, connect};
use semel_core::store::{Backend as _, Change, Kind, OpenOptions, Store as _};
use semel_sql::postgres::{Backend, Options, Store};
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
async fn a_store_is_there_as_soon_as_its_tables_are() {
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
async fn tables_of_a_newer_build_or_of_somebody_else_are_left_alone() {
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

/// What somebody changed by hand is found, and reported with the record that it concerns.
#[tokio::test(flavor = "multi_thread")]
async fn verification_finds_what_was_changed_by_hand() {
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
    for (number, words) in
        [(1, "changed without its digest"), (1, "cannot be read"), (2, "columns"), (3, "does not follow")]
    {
        let operation_id = semel_core::id::OperationId::of(&id(number)).to_string();
        let is_told = |line: &String| line.contains(&operation_id) && line.contains(words);
        assert!(findings.iter().any(is_told), "{operation_id} {words}: {findings:?}");
    }
    assert_eq!(findings.len(), 4, "{findings:?}");
}
