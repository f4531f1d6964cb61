//! Reading a file without changing it.

use crate::scratch::{Scratch, claimed, id, insert, is_done};
use semel_core::store::{Backend as _, Change, Count, Inspection as _, Kind, SchemaVersion, Store as _};
use semel_sql::sqlite::{Backend, Options, ReadOnlyStore};

fn inspect(scratch: &Scratch) -> ReadOnlyStore {
    ReadOnlyStore::open(scratch.file(), Options::default()).expect("it can be read")
}

fn current() -> usize {
    Backend.schema_steps().len()
}

#[tokio::test]
async fn inspecting_creates_no_file_and_no_table() {
    let scratch = Scratch::new("look-nothing");
    let error = ReadOnlyStore::open(scratch.file(), Options::default()).expect_err("nothing is there");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(!scratch.file().exists());

    scratch.raw().execute_batch("CREATE TABLE payments (id)").expect("made");
    let before = std::fs::read(scratch.file()).expect("read");
    let schema = inspect(&scratch).schema().await.expect("none of ours");
    assert_eq!(schema, SchemaVersion { have: 0, wanted: current() });
    assert_eq!(std::fs::read(scratch.file()).expect("read"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn inspecting_shows_what_others_write_and_writes_nothing() {
    let scratch = Scratch::new("look-beside");
    let store = scratch.open();
    let look = inspect(&scratch);
    let schema = look.schema().await.expect("ours");
    assert_eq!(schema, SchemaVersion { have: current(), wanted: current() });
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
    assert!(look.get(id(1)).await.expect("read").record().is_some());
    assert_eq!(look.count(Count::Records, 10).await.expect("counted").count, 1);
    assert_eq!(look.verify().await.expect("read"), Vec::<String>::new());

    let record = claimed(2);
    let refused = [
        look.write(id(2), Change::Insert(&record)).await.map(drop),
        look.write(id(2), Change::InsertMarker).await.map(drop),
        look.write(id(2), Change::RemoveMarker).await.map(drop),
        look.set("x", None, Some(b"y")).await.map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::ReadOnly));
    }
    assert_eq!(store.count(Count::Records, 10).await.expect("counted").count, 1);
}

#[tokio::test]
async fn inspecting_a_newer_file_says_so() {
    let scratch = Scratch::new("look-newer");
    drop(scratch.open());
    scratch.raw().execute("UPDATE semel_meta SET value = 1000 WHERE name = 'schema'", []).expect("changed");
    let error = inspect(&scratch).schema().await.expect_err("newer");
    assert!(error.to_string().contains("schema 1000"), "{error}");
}
