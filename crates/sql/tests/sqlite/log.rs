//! The length of the write-ahead log.

use crate::scratch::{Scratch, claimed, finished, id, insert, is_done};
use semel_core::store::Store as _;
use semel_sql::sqlite::{Options, Store};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn log_bytes(directory: &Path) -> u64 {
    std::fs::metadata(directory.join("semel.db-wal")).map_or(0, |found| found.len())
}

/// Writes about 24 MiB from many tasks, without a pause; returns the longest log that was seen.
async fn load(scratch: &Scratch, store: &Arc<Store>, first: u64) -> u64 {
    let tasks: Vec<_> = (0..24)
        .map(|lane| {
            let store = store.clone();
            let directory = scratch.directory().to_owned();
            tokio::spawn(async move {
                let mut longest = 0;
                for number in (first + lane..first + 480).step_by(24) {
                    let large = finished(&claimed(number), vec![7; 50_000]);
                    assert!(is_done(&insert(&store, number, &large).await));
                    longest = longest.max(log_bytes(&directory));
                }
                longest
            })
        })
        .collect();
    let mut longest = 0;
    for task in tasks {
        longest = longest.max(task.await.expect("no panic"));
    }
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn under_load_the_log_grows_only_while_a_reader_holds_it() {
    let scratch = Scratch::new("log");
    let options = Options::default().wal_bytes_max(MIB);
    let store = Arc::new(Store::open(scratch.file(), options).expect("the store opens"));
    let quiet = load(&scratch, &store, 0).await;
    assert!(quiet < 12 * MIB, "{quiet} bytes of log for a limit of one MiB and 24 MiB written");

    // Such as a backup: it keeps its view of the file, and with it everything that was written since.
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let held = load(&scratch, &store, 10_000).await;
    assert!(held > 20 * MIB, "{held}: the reader still sees what was there");
    let hazards = store.hazards().await.expect("looked at");
    assert!(hazards.iter().any(|hazard| hazard.code == "sqlite-long-log"), "{hazards:?}");
    assert!(store.get(id(10_000)).await.expect("read").record().is_some(), "no other read is delayed");

    reader.execute_batch("COMMIT").expect("it ends");
    load(&scratch, &store, 20_000).await;
    let after = log_bytes(scratch.directory());
    assert!(after < 12 * MIB, "{after} bytes of log after the reader has ended");
    for number in 30_000..30_500 {
        assert!(is_done(&insert(&store, number, &claimed(number)).await));
    }
    assert!(store.hazards().await.expect("looked at").iter().all(|hazard| hazard.code != "sqlite-long-log"));
}
