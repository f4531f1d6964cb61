//! Unreadable entries are reported as such, and never overwritten.

use crate::scratch::{Scratch, claimed, finished, id, insert, is_done, renewed};
use rusqlite::params;
use semel_core::id::OperationId;
use semel_core::machine::{Found, Unchanged};
use semel_core::store::{Change, Filter, Kind, Store as _, Written};

fn entry(scratch: &Scratch, number: u64) -> Vec<u8> {
    let sql = "SELECT entry FROM semel_records WHERE command_id = ?1";
    scratch.raw().query_row(sql, [id(number).as_bytes()], |row| row.get(0)).expect("it is stored")
}

fn overwrite(scratch: &Scratch, number: u64, entry: &[u8]) {
    let sql = "UPDATE semel_records SET entry = ?2 WHERE command_id = ?1";
    let changed = scratch.raw().execute(sql, params![id(number).as_bytes(), entry]).expect("overwritten");
    assert_eq!(changed, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_entry_with_matching_columns_is_not_swapped_or_removed() {
    let scratch = Scratch::new("damaged");
    let store = scratch.open();
    let record = claimed(1);
    assert!(is_done(&insert(&store, 1, &record).await));
    let intact = entry(&scratch, 1);
    // Every byte that could carry the version, the token or the state, and some that do not.
    for at in (0..intact.len()).step_by(7) {
        let mut damaged = intact.clone();
        damaged[at] ^= 0x10;
        overwrite(&scratch, 1, &damaged);
        let expect = Unchanged::of(&record);
        for written in [
            store.write(id(1), Change::Replace(expect, &renewed(&record))).await,
            store.write(id(1), Change::Remove(expect)).await,
            store.write(id(1), Change::RemoveMarker).await,
            store.write(id(1), Change::Insert(&record)).await,
            store.write(id(1), Change::InsertMarker).await,
        ] {
            let Ok(Written::Refused(reading)) = written else { panic!("byte {at}: {written:?}") };
            assert_eq!(reading.found(), Found::Unreadable, "byte {at}");
        }
        assert_eq!(store.get(id(1)).await.expect("read").found(), Found::Unreadable);
        assert_eq!(entry(&scratch, 1), damaged, "it was left unchanged");
    }
    overwrite(&scratch, 1, &intact);
    assert!(is_done(
        &store
            .write(id(1), Change::Replace(Unchanged::of(&record), &renewed(&record)))
            .await
            .expect("an answer")
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_records_are_listed() {
    let scratch = Scratch::new("listed-damage");
    let store = scratch.open();
    for number in 1..4 {
        assert!(is_done(&insert(&store, number, &claimed(number)).await));
    }
    overwrite(&scratch, 2, b"not a record");
    let readable = |items: &[semel_core::store::Item]| -> Vec<_> {
        items.iter().map(|item| (item.id, item.entry.is_ok())).collect()
    };
    let expected = [(id(1), true), (id(2), false), (id(3), true)];
    let page = store.page(&Filter::default(), None, 10).await.expect("read");
    assert_eq!(readable(&page.items), expected);
    let due = store.due(None, 10).await.expect("read");
    assert_eq!(due.items.len(), 0, "the machine's clock has not reached the leases");
    let (_, found) = store.find(OperationId::of(&id(2))).await.expect("read");
    assert_eq!(found.map(|item| (item.id, item.entry.is_ok())), Some((id(2), false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_command_ids_under_one_operation_id_are_an_error() {
    let scratch = Scratch::new("collision");
    let store = scratch.open();
    let record = claimed(1);
    assert!(is_done(&insert(&store, 1, &record).await));
    let sql = "UPDATE semel_records SET command_id = ?1";
    scratch.raw().execute(sql, [id(2).as_bytes()]).expect("changed by hand");
    let expect = Unchanged::of(&record);
    let answers = [
        store.write(id(1), Change::Insert(&record)).await,
        store.write(id(1), Change::Replace(expect, &finished(&record, "x"))).await,
        store.write(id(1), Change::Remove(expect)).await,
    ];
    for answer in answers {
        assert_eq!(answer.map_err(|error| error.kind()), Err(Kind::Unfit));
    }
    assert_eq!(store.get(id(1)).await.map_err(|error| error.kind()), Err(Kind::Unfit));
    let found = store.find(OperationId::of(&id(1))).await;
    assert_eq!(found.map_err(|error| error.kind()), Err(Kind::Unfit));
    // The others are not affected.
    assert!(is_done(&insert(&store, 3, &claimed(3)).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_of_another_type_affects_only_its_row() {
    let scratch = Scratch::new("column-type");
    let store = scratch.open();
    for number in 1..4 {
        assert!(is_done(&insert(&store, number, &claimed(number)).await));
    }
    for column in ["state", "due_at", "updated_at", "caller", "key"] {
        let sql = format!("UPDATE semel_records SET {column} = ?2 WHERE command_id = ?1");
        let kept: rusqlite::types::Value = scratch
            .raw()
            .query_row(
                &format!("SELECT {column} FROM semel_records WHERE command_id = ?1"),
                [id(2).as_bytes()],
                |row| row.get(0),
            )
            .expect("read");
        scratch.raw().execute(&sql, params![id(2).as_bytes(), "text"]).expect("overwritten");
        let page = store.page(&Filter::default(), None, 10).await.expect("read");
        let listed: Vec<_> = page.items.iter().map(|item| (item.id, item.record().is_some())).collect();
        assert_eq!(listed, [(id(1), true), (id(2), false), (id(3), true)], "{column}");
        scratch.raw().execute(&sql, params![id(2).as_bytes(), kept]).expect("put back");
    }
}
