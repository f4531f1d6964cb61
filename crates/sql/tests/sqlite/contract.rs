//! The contract of every store.

use crate::scratch::Scratch;
use rusqlite::params;
use semel_core::store::Store;
use semel_sql::sqlite::{Options, Store as Sqlite};
use semel_testkit::{Doing, FakeClock, Subject};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static SUBJECTS: AtomicU64 = AtomicU64::new(0);

fn opened(path: &Path, clock: &FakeClock) -> Arc<dyn Store> {
    let options = Options::default().clock(Arc::new(clock.clone()));
    Arc::new(Sqlite::open(path, options).expect("the store opens"))
}

#[expect(clippy::unused_async, reason = "the suite opens stores of every kind, servers too")]
async fn open() -> Subject {
    let scratch = Scratch::new(&format!("contract-{}", SUBJECTS.fetch_add(1, Ordering::Relaxed)));
    let (path, clock) = (scratch.file(), FakeClock::default());
    let handle = {
        let (path, clock) = (path.clone(), clock.clone());
        move || -> Doing<Arc<dyn Store>> { Box::pin(std::future::ready(opened(&path, &clock))) }
    };
    Subject::new(opened(&path, &clock), clock)
        .joined_by(handle.clone())
        .reopened_by(handle)
        .damaged_by(move |id, bytes| {
            let raw = rusqlite::Connection::open(&path).expect("the file opens");
            let sql = "UPDATE semel_records SET entry = ?2 WHERE command_id = ?1";
            let changed = raw.execute(sql, params![id.as_bytes(), &*bytes]).expect("overwritten");
            assert_eq!(changed, 1, "there was nothing to damage");
            Box::pin(std::future::ready(()))
        })
        .holding(scratch)
}

semel_testkit::contract!(store, open);
