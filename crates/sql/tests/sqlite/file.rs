//! The file itself: what it may already contain, and the hazards of its location.

use crate::child::{ChildProcess, Part, command};
use crate::scratch::{Scratch, claimed, id, insert, is_done, open};
use semel_core::store::{Change, Error, Kind, Severity, Store as _};
use semel_sql::sqlite::{Options, Store};
use std::path::Path;

fn refusal(path: &Path) -> Error {
    Store::open(path, Options::default()).expect_err("refused")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_applications_tables_may_be_in_the_same_file() {
    let scratch = Scratch::new("shared-file");
    scratch.raw().execute_batch("CREATE TABLE payments (id); INSERT INTO payments VALUES (7)").expect("made");
    let store = scratch.open();
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
    drop(store);
    let paid: i64 = scratch.raw().query_row("SELECT id FROM payments", [], |row| row.get(0)).expect("kept");
    assert_eq!(paid, 7);
}

#[test]
fn a_file_that_is_not_a_database_is_left_unchanged() {
    let scratch = Scratch::new("no-database");
    let text = "dear diary, ".repeat(1000);
    std::fs::write(scratch.file(), &text).expect("written");
    let error = refusal(&scratch.file());
    assert_eq!(error.kind(), Kind::Unfit);
    assert!(error.to_string().contains("not a database"), "{error}");
    assert_eq!(std::fs::read_to_string(scratch.file()).expect("read"), text);
}

#[test]
fn newer_and_foreign_tables_are_refused() {
    let scratch = Scratch::new("not-ours");
    scratch.raw().execute_batch("CREATE TABLE semel_records (mine)").expect("made");
    let error = refusal(&scratch.file());
    assert_eq!(error.kind(), Kind::Unfit);
    assert!(error.to_string().contains("semel_records"), "{error}");

    let scratch = Scratch::new("newer");
    drop(scratch.open());
    scratch.raw().execute("UPDATE semel_meta SET value = 1000 WHERE name = 'schema'", []).expect("changed");
    let error = refusal(&scratch.file());
    assert_eq!(error.kind(), Kind::Unfit);
    assert!(error.to_string().contains("schema 1000"), "{error}");
}

#[test]
fn a_missing_directory_is_named() {
    let scratch = Scratch::new("nowhere");
    let path = scratch.directory().join("missing").join("semel.db");
    let error = refusal(&path);
    assert_eq!(error.kind(), Kind::Unavailable);
    assert!(error.to_string().contains("missing"), "{error}");
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_a_new_file() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = Scratch::new("private");
    let store = scratch.open();
    for entry in std::fs::read_dir(scratch.directory()).expect("listed") {
        let entry = entry.expect("read");
        let mode = entry.metadata().expect("read").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", entry.path().display());
    }
    drop(store);
}

/// An observer checks as often as it can while the files are created.
#[cfg(unix)]
#[test]
fn a_new_file_is_private_from_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    let scratch = Scratch::new("never-public");
    let path = |number: u32| scratch.directory().join(format!("{number}.db"));
    let over = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let bystander = scope.spawn(|| {
            let mut seen = std::collections::BTreeSet::new();
            let mut last = false;
            while !last {
                last = over.load(Ordering::Relaxed);
                for number in 0..30 {
                    let modes =
                        std::fs::metadata(path(number)).map(|found| found.permissions().mode() & 0o777);
                    seen.extend(modes);
                }
            }
            seen
        });
        (0..30).for_each(|number| drop(open(&path(number))));
        over.store(true, Ordering::Relaxed);
        bystander.join().expect("no panic")
    });
    assert_eq!(Vec::from_iter(seen), [0o600]);
}

#[cfg(unix)]
#[test]
fn a_path_is_a_path_and_not_a_uri() {
    let scratch = Scratch::new("uri");
    // Relative, because only such a path can look like a URI.
    assert!(ChildProcess::start(command(Part::Uri, &scratch.file(), 0)).ended());
    assert!(scratch.directory().join("file:semel.db?mode=memory").exists());
    for path in ["", ":memory:"] {
        let error = refusal(Path::new(path));
        assert_eq!(error.kind(), Kind::Unfit);
        assert!(error.to_string().contains("names no file"), "{error}");
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn links_lead_to_the_same_store() {
    let scratch = Scratch::new("links");
    let (inner, link) = (scratch.directory().join("inner"), scratch.directory().join("link.db"));
    std::fs::create_dir(&inner).expect("made");
    std::os::unix::fs::symlink(inner.join("semel.db"), &link).expect("linked");
    let error = refusal(&link);
    assert!(error.kind() == Kind::Unavailable && error.to_string().contains("link.db"), "{error}");
    drop(open(&inner.join("semel.db")));
    let store = open(&link);
    assert_eq!(store.name(), format!("sqlite:{}", inner.join("semel.db").display()));
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
    let replaced = async || {
        let hazards = store.hazards().await.expect("looked at");
        hazards.iter().any(|hazard| hazard.code == "sqlite-file-replaced")
    };
    assert!(!replaced().await);
    std::fs::remove_file(&link).expect("unlinked");
    assert!(replaced().await, "at the next start this path would be a new file");
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_are_read_while_another_process_holds_the_lock() {
    let scratch = Scratch::new("held");
    let store = scratch.open();
    let free = store.hazards().await.expect("looked at");
    let other = rusqlite::Connection::open(scratch.file()).expect("the same file");
    other.execute_batch("BEGIN IMMEDIATE").expect("another transaction");
    assert_eq!(store.hazards().await.expect("looked at"), free);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_removed_under_the_store_is_a_hazard() {
    let scratch = Scratch::new("replaced");
    let store = scratch.open();
    let codes = async || -> Vec<_> {
        let found = store.hazards().await.expect("looked at");
        found
            .into_iter()
            .filter(|hazard| hazard.severity == Severity::Danger)
            .map(|hazard| hazard.code)
            .collect()
    };
    let before = codes().await;
    assert!(!before.contains(&"sqlite-file-replaced"), "{before:?}");
    std::fs::rename(scratch.file(), scratch.directory().join("elsewhere.db")).expect("renamed");
    assert!(codes().await.contains(&"sqlite-file-replaced"));
    std::fs::write(scratch.file(), "").expect("put in its place");
    assert!(codes().await.contains(&"sqlite-file-replaced"));
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread")]
async fn a_log_removed_under_the_store_is_a_hazard() {
    let scratch = Scratch::new("no-log");
    let store = scratch.open();
    let hazard_codes = async || -> Vec<_> {
        let found = store.hazards().await.expect("looked at");
        found.into_iter().map(|hazard| hazard.code).filter(|code| code.ends_with("-replaced")).collect()
    };
    assert!(hazard_codes().await.is_empty());
    std::fs::rename(scratch.log(), scratch.directory().join("elsewhere")).expect("renamed");
    assert_eq!(hazard_codes().await, ["sqlite-log-replaced"]);
    std::fs::write(scratch.log(), "").expect("put in its place");
    assert_eq!(hazard_codes().await, ["sqlite-log-replaced"]);
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_file_in_memory_is_a_hazard() {
    // Shared memory is a file system in memory on every Linux.
    let path = Path::new("/dev/shm").join(format!("semel-{}.db", std::process::id()));
    let store = open(&path);
    let found = store.hazards().await.expect("looked at");
    drop(store);
    drop(std::fs::remove_file(&path));
    let codes: Vec<_> = found.iter().map(|hazard| (hazard.severity, hazard.code)).collect();
    assert_eq!(codes, [(Severity::Danger, "sqlite-in-memory")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_affects_only_its_records_and_is_found() {
    let scratch = Scratch::new("bad-page");
    {
        let store = scratch.open();
        for number in 0..200 {
            assert!(is_done(&insert(&store, number, &claimed(number)).await));
        }
    }
    let root: u32 = scratch
        .raw()
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'semel_records_due_at'", [], |row| {
            row.get(0)
        })
        .expect("it is there");
    let root = usize::try_from(root).expect("a small number");
    let mut bytes = std::fs::read(scratch.file()).expect("read");
    bytes[(root - 1) * 4096..root * 4096].fill(0xff);
    std::fs::write(scratch.file(), bytes).expect("damaged");

    let store = scratch.open();
    assert_eq!(store.get(id(7)).await.expect("it is elsewhere").record(), Some(&claimed(7)));
    let error = store.write(id(1000), Change::Insert(&claimed(1000))).await.expect_err("not written");
    assert_eq!(error.kind(), Kind::Unfit, "{error}");
    assert_eq!(store.get(id(1000)).await.expect("read").entry, None, "nothing of it was written");
    assert_ne!(store.verify().await.expect("read"), Vec::<String>::new());
}
