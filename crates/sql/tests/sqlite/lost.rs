//! Files that are removed, renamed or replaced while the store has them open: nothing more is acknowledged.

use crate::child::{ChildProcess, Part, command};
use crate::scratch::{Scratch, claimed, finished, id, insert, is_done, open};
use semel_core::store::{Change, Count, Error, Filter, Kind, Severity, Store as _};
use semel_sql::sqlite::Store;
use std::path::Path;
use std::sync::Arc;

async fn write(store: &Store, number: u64) -> Result<(), Error> {
    store.write(id(number), Change::Insert(&claimed(number))).await.map(|written| assert!(is_done(&written)))
}

/// How every kind of call fails.
async fn refusals(store: &Store) -> Vec<Error> {
    let expect = semel_core::machine::Unchanged::of(&claimed(1));
    let next = finished(&claimed(1), "x");
    vec![
        write(store, 900).await.expect_err("insert"),
        store.write(id(1), Change::Replace(expect, &next)).await.expect_err("swap"),
        store.write(id(1), Change::Remove(expect)).await.expect_err("remove"),
        store.write(id(1), Change::RemoveMarker).await.expect_err("remove_marker"),
        store.get(id(1)).await.expect_err("get"),
        store.find(claimed(1).operation_id()).await.expect_err("find"),
        store.page(&Filter::default(), None, 10).await.expect_err("page"),
        store.due(None, 10).await.expect_err("due"),
        store.markers(None, 10).await.expect_err("markers"),
        store.count(Count::Records, 10).await.expect_err("count"),
        store.tally(None, None, 10).await.expect_err("tally"),
        store.settings().await.expect_err("settings"),
        store.set("name", None, Some(b"value")).await.expect_err("set"),
        store.verify().await.expect_err("verify"),
    ]
}

/// Everything fails with the reason, and continues to fail.
async fn is_closed(store: &Store, about: &Path, change: &str, code: &str) {
    for error in refusals(store).await {
        assert_eq!(error.kind(), Kind::Unfit, "{error}");
        let text = error.to_string();
        for expected in [&*about.to_string_lossy(), change, "cannot be relied on", "start again"] {
            assert!(text.contains(expected), "{expected} is not in: {text}");
        }
    }
    let dangers = store.hazards().await.expect("looked at");
    assert!(
        dangers.iter().any(|found| (found.severity, found.code) == (Severity::Danger, code)),
        "{dangers:?}"
    );
}

/// A store with one acknowledged record, after `lose` removed something and a write was not acknowledged.
async fn lost(scratch: &Scratch, lose: impl FnOnce(&Scratch)) -> Store {
    write(&scratch.open(), 1).await.expect("acknowledged");
    // This one has written nothing yet, so that nothing checks the files before the write below.
    let store = scratch.open();
    lose(scratch);
    let error = write(&store, 2).await.expect_err("not acknowledged");
    assert_eq!(error.kind(), Kind::Ambiguous, "{error}");
    store
}

/// Ambiguous; or nothing was written, if a checkpoint has noticed it before.
async fn is_not_acknowledged(store: &Store, number: u64) {
    let error = write(store, number).await.expect_err("not acknowledged");
    assert!(matches!(error.kind(), Kind::Ambiguous | Kind::Unfit), "{error}");
}

fn elsewhere(scratch: &Scratch) -> std::path::PathBuf {
    scratch.directory().join("elsewhere.db")
}

async fn numbers(store: &Store) -> Vec<bool> {
    let mut found = Vec::new();
    for number in 1..=3 {
        found.push(store.get(id(number)).await.expect("read").record().is_some());
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_file_takes_no_more_acknowledgements() {
    let scratch = Scratch::new("lost-removed");
    let store = lost(&scratch, |scratch| std::fs::remove_file(scratch.file()).expect("removed")).await;
    is_closed(&store, &scratch.file(), "removed or renamed", "sqlite-file-replaced").await;
    store.close().await;
    drop(store);
    let anew = scratch.open();
    assert_eq!(numbers(&anew).await, [false; 3], "its contents are gone, and nothing of them returns");
    assert_eq!(anew.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_file_that_is_put_back_has_all_acknowledged_records() {
    let scratch = Scratch::new("lost-renamed");
    let store = scratch.open();
    // A reader prevents writes from being moved into the file.
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    write(&store, 1).await.expect("acknowledged");
    std::fs::rename(scratch.file(), elsewhere(&scratch)).expect("renamed");
    is_not_acknowledged(&store, 2).await;
    is_closed(&store, &scratch.file(), "removed or renamed", "sqlite-file-replaced").await;
    drop(reader);
    drop(store);
    // Only the file is put back, without its log.
    for ending in ["-wal", "-shm"] {
        drop(std::fs::remove_file(scratch.directory().join(format!("semel.db{ending}"))));
    }
    std::fs::rename(elsewhere(&scratch), scratch.file()).expect("put back");
    let again = scratch.open();
    assert!(again.get(id(1)).await.expect("read").record().is_some());
    assert_eq!(again.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_put_back_under_a_running_store_opens_nothing() {
    let scratch = Scratch::new("lost-put-back");
    let store =
        lost(&scratch, |scratch| std::fs::rename(scratch.file(), elsewhere(scratch)).expect("renamed")).await;
    std::fs::rename(elsewhere(&scratch), scratch.file()).expect("put back");
    is_closed(&store, &scratch.file(), "removed or renamed", "sqlite-file-replaced").await;
}

/// A complete copy, as a backup makes it.
fn copy(scratch: &Scratch) {
    let to = elsewhere(scratch);
    scratch.raw().execute("VACUUM INTO ?1", [to.to_str().expect("UTF-8")]).expect("copied");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replacing_copy_is_not_mixed_with_the_old_log() {
    let scratch = Scratch::new("lost-copy");
    let store = scratch.open();
    for number in 100..400 {
        write(&store, number).await.expect("acknowledged");
    }
    copy(&scratch);
    write(&store, 1).await.expect("acknowledged");
    std::fs::rename(elsewhere(&scratch), scratch.file()).expect("put in its place");
    is_not_acknowledged(&store, 2).await;
    is_closed(&store, &scratch.file(), "replaced by another file", "sqlite-file-replaced").await;
    drop(store);
    let again = scratch.open();
    assert_eq!(again.verify().await.expect("read"), Vec::<String>::new());
    assert_eq!(again.count(Count::Records, 1_000).await.expect("read").count, 300, "what the copy held");
    assert_eq!(numbers(&again).await, [false; 3], "and nothing later");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_file_in_the_files_place_is_a_new_store() {
    let scratch = Scratch::new("lost-empty");
    let store = lost(&scratch, |scratch| {
        std::fs::write(elsewhere(scratch), "").expect("made");
        std::fs::rename(elsewhere(scratch), scratch.file()).expect("put in its place");
    })
    .await;
    is_closed(&store, &scratch.file(), "replaced by another file", "sqlite-file-replaced").await;
    drop(store);
    let anew = scratch.open();
    assert_eq!(numbers(&anew).await, [false; 3]);
    write(&anew, 3).await.expect("acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_log_closes_the_store_and_loses_nothing_acknowledged() {
    let scratch = Scratch::new("lost-log");
    let store = scratch.open();
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    write(&store, 1).await.expect("acknowledged, and in the log only");
    std::fs::remove_file(scratch.log()).expect("removed");
    is_not_acknowledged(&store, 2).await;
    is_closed(&store, &scratch.log(), "removed or renamed", "sqlite-log-replaced").await;
    drop(reader);
    drop(store);
    let again = scratch.open();
    assert!(again.get(id(1)).await.expect("read").record().is_some(), "what was acknowledged");
    assert_eq!(again.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_begun_by_another_process_is_left_alone() {
    let scratch = Scratch::new("lost-log-replaced");
    let store = lost(&scratch, |scratch| {
        std::fs::rename(scratch.log(), elsewhere(scratch)).expect("renamed");
        std::fs::write(scratch.log(), "somebody else's").expect("put in its place");
    })
    .await;
    is_closed(&store, &scratch.log(), "replaced by another file", "sqlite-log-replaced").await;
    drop(store);
    assert_eq!(std::fs::read_to_string(scratch.log()).expect("it is there"), "somebody else's");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_log_index_closes_the_store() {
    let scratch = Scratch::new("lost-index");
    let index = scratch.directory().join("semel.db-shm");
    let store = lost(&scratch, |_| std::fs::remove_file(&index).expect("removed")).await;
    is_closed(&store, &index, "removed or renamed", "sqlite-log-index-replaced").await;
    drop(store);
    assert!(scratch.open().get(id(1)).await.expect("read").record().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_moved_directory_closes_the_store() {
    let scratch = Scratch::new("lost-directory");
    let (inner, away) = (scratch.directory().join("inner"), scratch.directory().join("away"));
    std::fs::create_dir(&inner).expect("made");
    let store = open(&inner.join("semel.db"));
    write(&store, 1).await.expect("acknowledged");
    std::fs::rename(&inner, &away).expect("moved");
    is_not_acknowledged(&store, 2).await;
    is_closed(&store, &inner.join("semel.db"), "removed or renamed", "sqlite-file-replaced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_from_a_file_that_another_process_replaced() {
    let scratch = Scratch::new("lost-read");
    let store = scratch.open();
    write(&store, 1).await.expect("acknowledged");
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(scratch.directory().join(format!("semel.db{ending}"))).expect("removed");
    }
    assert!(
        ChildProcess::start(command(Part::Open, &scratch.file(), 7)).ended(),
        "it wrote to a separate file"
    );
    let error = store.get(id(7)).await.expect_err("not read as absent");
    assert_eq!(error.kind(), Kind::Unfit, "{error}");
    is_closed(&store, &scratch.file(), "while this process had it open", "sqlite-file-replaced").await;
    drop(store);
    let theirs = scratch.open();
    assert!(theirs.get(id(7)).await.expect("read").record().is_some(), "and theirs is unharmed");
    assert_eq!(theirs.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_is_acknowledged_after_the_file_is_removed() {
    let scratch = Scratch::new("lost-batch");
    let store = Arc::new(scratch.open());
    std::fs::remove_file(scratch.file()).expect("removed");
    let writes: Vec<_> = (100..300)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { write(&store, number).await })
        })
        .collect();
    let mut ambiguous = 0;
    for answer in writes {
        let kind = answer.await.expect("no panic").expect_err("not acknowledged").kind();
        assert!(matches!(kind, Kind::Ambiguous | Kind::Unfit), "{kind}");
        ambiguous += usize::from(kind == Kind::Ambiguous);
    }
    assert!(ambiguous > 0, "the affected batch is ambiguous");
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_leads_elsewhere_closes_the_store() {
    let scratch = Scratch::new("lost-link");
    let link = scratch.directory().join("link.db");
    let point = |to: &Path| {
        let fresh = scratch.directory().join("fresh-link");
        std::os::unix::fs::symlink(to, &fresh).expect("linked");
        std::fs::rename(&fresh, &link).expect("put in its place");
    };
    drop(scratch.open());
    point(&scratch.file());
    let store = open(&link);
    point(Path::new("semel.db"));
    write(&store, 1).await.expect("another link to the same file changes nothing");
    drop(open(&elsewhere(&scratch)));
    point(&elsewhere(&scratch));
    is_not_acknowledged(&store, 2).await;
    is_closed(&store, &link, "replaced by another file", "sqlite-file-replaced").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlites_own_tools_do_not_close_the_store() {
    let scratch = Scratch::new("lost-not");
    let store = scratch.open();
    for round in 0..5 {
        write(&store, round).await.expect("acknowledged");
        let other = scratch.raw();
        other.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("another process's checkpoint");
        other.execute_batch("CREATE TABLE IF NOT EXISTS mine (x); VACUUM").expect("rewritten in place");
        assert_ne!(
            other.pragma_update_and_check(None, "journal_mode", "delete", |row| row.get::<_, String>(0)).ok(),
            Some("delete".to_owned()),
            "the log stays while the file is open elsewhere"
        );
        drop(other);
        copy(&scratch);
        std::fs::remove_file(elsewhere(&scratch)).expect("removed");
        assert!(ChildProcess::start(command(Part::Open, &scratch.file(), 100 + round)).ended());
        drop(scratch.open());
        assert!(store.get(id(100 + round)).await.expect("read").record().is_some());
    }
    assert!(is_done(&insert(&store, 50, &claimed(50)).await));
}
