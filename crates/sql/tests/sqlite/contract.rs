//! The contract of every store.

use crate::scratch::Scratch;
use rusqlite::params;
use semel_sql::sqlite;
use semel_testkit::Subject;
use std::sync::atomic::{AtomicU64, Ordering};

static SUBJECTS: AtomicU64 = AtomicU64::new(0);

async fn open() -> Subject {
    let scratch = Scratch::new(&format!("contract-{}", SUBJECTS.fetch_add(1, Ordering::Relaxed)));
    let path = scratch.file();
    Subject::opened_by(&sqlite::Backend, path.to_str().expect("text"))
        .await
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
