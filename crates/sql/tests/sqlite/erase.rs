//! What was erased is in none of the store's files.

use crate::scratch::{Scratch, claimed, finished, id, insert, is_done, stamp, swap};
use semel_core::machine::{self, Erasure, Unchanged};
use semel_core::record::Record;
use semel_core::store::{Change, Remnants, Store as _};
use semel_sql::sqlite::Store;

/// How many records there are, and from which on every one is erased in the end.
const COUNT: u64 = 120;
const NOW: u64 = 1_800_000_000_000;

fn secret(number: u64) -> String {
    format!("SECRET-OF-{number:04};")
}

/// A body that is the secret over and over, within a page, over a page, and over many.
fn body(number: u64) -> Vec<u8> {
    let bytes = [60, 900, 3_000, 9_000, 70_000][usize::try_from(number % 5).expect("small")];
    secret(number).into_bytes().into_iter().cycle().take(bytes).collect()
}

fn is_in_files(scratch: &Scratch, number: u64) -> bool {
    let needle = secret(number);
    [scratch.file(), scratch.log()].into_iter().any(|file| {
        let bytes = std::fs::read(file).unwrap_or_default();
        bytes.windows(needle.len()).any(|part| part == needle.as_bytes())
    })
}

/// Records that are inserted in turn, finished in another order, and some of them removed: pages split, merge and are freed.
async fn churned(store: &Store) -> Vec<(u64, Record)> {
    let mut kept = Vec::new();
    for number in 0..COUNT {
        assert!(is_done(&insert(store, number, &claimed(number)).await));
    }
    for number in (0..COUNT).map(|step| step * 7 % COUNT) {
        let (claim, done) = (claimed(number), finished(&claimed(number), body(number)));
        assert!(is_done(&swap(store, number, &claim, &done).await));
        kept.push((number, done));
    }
    let (gone, kept): (Vec<_>, Vec<_>) = kept.into_iter().partition(|(number, _)| number % 3 == 0);
    for (number, record) in gone {
        let removed =
            store.write(id(number), Change::Remove(Unchanged::of(&record))).await.expect("an answer");
        assert!(is_done(&removed));
    }
    kept
}

#[tokio::test]
async fn nothing_of_an_erased_response_is_left_in_the_file_or_its_log() {
    let scratch = Scratch::new("erase");
    let store = scratch.open();
    let records = churned(&store).await;
    let (last, _) = records.last().expect("some");
    assert!(is_in_files(&scratch, *last), "before, it can be found");
    for (index, (number, record)) in records.iter().enumerate() {
        let erasure = if index % 2 == 0 { Erasure::Response } else { Erasure::Record };
        let erased = machine::erase(record, erasure, stamp(NOW + 3)).expect("it has an outcome").next;
        assert!(is_done(&swap(&store, *number, record, &erased).await));
    }
    assert_eq!(store.scrub().await.expect("scrubbed"), Remnants::None);
    for number in 0..COUNT {
        assert!(!is_in_files(&scratch, number), "the response of record {number} is still there");
    }
    store.close().await;
}

#[tokio::test]
async fn a_reader_that_holds_the_log_is_reported() {
    let scratch = Scratch::new("erase-held");
    let store = scratch.open();
    let record = finished(&claimed(4), body(4));
    assert!(is_done(&insert(&store, 4, &record).await));
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let erased = machine::erase(&record, Erasure::Response, stamp(NOW + 3)).expect("it has an outcome").next;
    assert!(is_done(&swap(&store, 4, &record, &erased).await));
    let remnants = store.scrub().await.expect("scrubbed");
    assert!(
        matches!(&remnants, Remnants::MayRemain(places) if places.contains("semel.db-wal")),
        "{remnants:?}"
    );
    reader.execute_batch("COMMIT").expect("it ends");
    assert_eq!(store.scrub().await.expect("scrubbed"), Remnants::None);
    assert!(!is_in_files(&scratch, 4));
    store.close().await;
}
