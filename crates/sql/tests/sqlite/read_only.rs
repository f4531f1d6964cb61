//! Looking at a file without touching it.

use crate::scratch::{Scratch, claimed, id, insert, is_done};
use semel_core::store::{Count, Fresh, Kind, Store as _};
use semel_sql::sqlite::{Look, Options, Schema, steps};

fn look(scratch: &Scratch) -> Look {
    Look::open(scratch.file(), Options::default()).expect("it can be looked at")
}

#[test]
fn a_look_creates_no_file_and_no_table() {
    let scratch = Scratch::new("look-nothing");
    let error = Look::open(scratch.file(), Options::default()).expect_err("nothing is there");
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(!scratch.file().exists());

    scratch.raw().execute_batch("CREATE TABLE payments (id)").expect("made");
    let before = std::fs::read(scratch.file()).expect("read");
    assert_eq!(look(&scratch).schema().expect("none of ours"), Schema { have: 0, wanted: steps().len() });
    assert_eq!(std::fs::read(scratch.file()).expect("read"), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_look_sees_what_others_write_and_writes_nothing() {
    let scratch = Scratch::new("look-beside");
    let store = scratch.open();
    let look = look(&scratch);
    assert_eq!(look.schema().expect("ours"), Schema { have: steps().len(), wanted: steps().len() });
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
    assert!(look.get(id(1)).await.expect("read").record().is_some());
    assert_eq!(look.count(Count::Records, 10).await.expect("counted").count, 1);
    assert_eq!(look.verify().expect("read"), Vec::<String>::new());

    let record = claimed(2);
    let refused = [
        look.insert(id(2), Fresh::Record(&record)).await.map(drop),
        look.insert(id(2), Fresh::Moved).await.map(drop),
        look.remove_marker(id(2)).await.map(drop),
        look.set("x", None, Some(b"y")).await.map(drop),
    ];
    for refused in refused {
        assert_eq!(refused.map_err(|error| error.kind()), Err(Kind::ReadOnly));
    }
    assert_eq!(store.count(Count::Records, 10).await.expect("counted").count, 1);
}

#[test]
fn a_look_at_what_is_not_ours_or_newer_says_so() {
    let scratch = Scratch::new("look-newer");
    drop(scratch.open());
    scratch.raw().execute("UPDATE semel_meta SET value = 1000 WHERE name = 'schema'", []).expect("changed");
    let error = look(&scratch).schema().expect_err("newer");
    assert!(error.to_string().contains("schema 1000"), "{error}");
}
