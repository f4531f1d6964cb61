//! An erased response is in none of the store's files.

use crate::child::{ChildProcess, Part, command};
use crate::scratch::{Scratch, claimed, finished, id, insert, is_done, open, stamp, swap};
use semel_core::machine::{self, Erasure, Unchanged};
use semel_core::record::Record;
use semel_core::store::{Change, RemainingCopies, Store as _};
use semel_sql::sqlite::Store;
use std::path::Path;
use std::time::Duration;

/// How many records there are, and from which number on they are erased in the end.
const COUNT: u64 = 120;
const NOW: u64 = 1_800_000_000_000;

fn secret(number: u64) -> String {
    format!("SECRET-OF-{number:04};")
}

/// A body that repeats the secret: within a page, over a page, and over many.
fn body(number: u64) -> Vec<u8> {
    let bytes = [60, 900, 3_000, 9_000, 70_000][usize::try_from(number % 5).expect("small")];
    secret(number).into_bytes().into_iter().cycle().take(bytes).collect()
}

fn is_in_files(scratch: &Scratch, number: u64) -> bool {
    [scratch.file(), scratch.log()].into_iter().any(|file| is_in(&file, number))
}

fn is_in(file: &Path, number: u64) -> bool {
    let (needle, bytes) = (secret(number), std::fs::read(file).unwrap_or_default());
    bytes.windows(needle.len()).any(|part| part == needle.as_bytes())
}

/// Records are inserted in order, finished in another order, and partly removed: pages split, merge and are
/// freed.
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
async fn an_erased_response_is_left_in_neither_file_nor_log() {
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
    assert_eq!(store.scrub().await.expect("scrubbed"), RemainingCopies::None);
    for number in 0..COUNT {
        assert!(!is_in_files(&scratch, number), "the response of record {number} is still there");
    }
    store.close().await;
}

#[tokio::test]
async fn a_reader_keeps_bytes_in_file_and_log() {
    let scratch = Scratch::new("erase-held");
    let store = scratch.open();
    let record = finished(&claimed(4), body(4));
    assert!(is_done(&insert(&store, 4, &record).await));
    assert_eq!(store.scrub().await.expect("scrubbed"), RemainingCopies::None);
    assert!(is_in(&scratch.file(), 4) && !is_in(&scratch.log(), 4), "the log is in the file");
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let erased = machine::erase(&record, Erasure::Response, stamp(NOW + 3)).expect("it has an outcome").next;
    assert!(is_done(&swap(&store, 4, &record, &erased).await));
    let remnants = store.scrub().await.expect("scrubbed");
    assert!(is_in(&scratch.file(), 4), "the file has the old page");
    let RemainingCopies::MayRemain(places) = remnants else { panic!("{remnants:?}") };
    assert!(places.contains("semel.db and ") && places.contains("semel.db-wal,"), "{places}");
    reader.execute_batch("COMMIT").expect("it ends");
    assert_eq!(store.scrub().await.expect("scrubbed"), RemainingCopies::None);
    assert!(!is_in_files(&scratch, 4));
    store.close().await;
}

/// In the role of a process that is killed: erases the response of one record, which is still in the log then.
pub(crate) async fn erase_and_wait(file: &Path, number: u64) {
    let store = open(file);
    // From before the first write: so nothing of it is moved out of the log.
    let reader = rusqlite::Connection::open(file).expect("the file opens");
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let record = finished(&claimed(number), body(number));
    assert!(is_done(&insert(&store, number, &record).await));
    let erased = machine::erase(&record, Erasure::Record, stamp(NOW + 3)).expect("it has an outcome").next;
    assert!(is_done(&swap(&store, number, &record, &erased).await));
    println!("erased {number} .");
    std::future::pending::<()>().await;
}

/// A file whose last process erased a response, and was killed before it removed the bytes.
fn killed_while_erasing(name: &str, number: u64) -> Scratch {
    let scratch = Scratch::new(name);
    let mut child = ChildProcess::start(command(Part::Erase, &scratch.file(), number));
    assert_eq!(child.next_numbers("erased"), Some(vec![number]));
    child.kill();
    assert!(!child.ended());
    assert!(is_in(&scratch.log(), number), "the log has what was erased");
    scratch
}

#[tokio::test]
async fn opening_completes_an_erasure_that_was_killed() {
    for number in 0..5 {
        let scratch = killed_while_erasing("erase-killed", number);
        let store = scratch.open();
        assert!(!is_in_files(&scratch, number), "the response of record {number} is still there");
        assert!(store.get(id(number)).await.expect("read").record().is_some(), "the record stays");
        store.close().await;
    }
}

#[tokio::test]
async fn a_killed_erasure_is_completed_when_the_last_reader_ends() {
    let scratch = killed_while_erasing("erase-killed-held", 4);
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let store = scratch.open();
    assert!(is_in(&scratch.log(), 4), "the reader keeps the log");
    reader.execute_batch("COMMIT").expect("it ends");
    are_gone(&scratch, 4).await;
    store.close().await;
}

#[tokio::test]
async fn bytes_that_a_reader_kept_go_without_another_erasure() {
    let scratch = Scratch::new("erase-later");
    let store = scratch.open();
    let record = finished(&claimed(4), body(4));
    assert!(is_done(&insert(&store, 4, &record).await));
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let erased = machine::erase(&record, Erasure::Response, stamp(NOW + 3)).expect("it has an outcome").next;
    assert!(is_done(&swap(&store, 4, &record, &erased).await));
    assert_ne!(store.scrub().await.expect("scrubbed"), RemainingCopies::None);
    reader.execute_batch("COMMIT").expect("it ends");
    are_gone(&scratch, 4).await;
    store.close().await;
}

/// Waits for the next try to empty the log.
async fn are_gone(scratch: &Scratch, number: u64) {
    for _ in 0..3_000 {
        if !is_in_files(scratch, number) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the response of record {number} is still there");
}
