//! The write-ahead log: as long as it must be, and no longer.

use crate::scratch::{Scratch, claimed, finished, id, insert, is_done};
use semel_core::store::Store as _;
use semel_sql::sqlite::{Options, Store};
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn log_bytes(scratch: &Scratch) -> u64 {
    let path = scratch.directory().join("semel.db-wal");
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Writes about 24 MiB from many tasks at once; tells the longest that the log was seen.
async fn load(scratch: &Scratch, store: &Arc<Store>, first: u64) -> u64 {
    let mut longest = 0;
    for round in 0..20 {
        let tasks: Vec<_> = (0..24)
            .map(|lane| {
                let (store, number) = (store.clone(), first + round * 24 + lane);
                tokio::spawn(async move {
                    let large = finished(&claimed(number), vec![7; 50_000]);
                    assert!(is_done(&insert(&store, number, &large).await));
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        longest = longest.max(log_bytes(scratch));
    }
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_stays_short_under_load_and_grows_only_while_a_reader_holds_it() {
    let scratch = Scratch::new("log");
    let options = Options::default().wal_bytes_max(MIB);
    let store = Arc::new(Store::open(scratch.file(), options).expect("the store opens"));
    let quiet = load(&scratch, &store, 0).await;
    assert!(quiet < 12 * MIB, "{quiet} bytes of log for a limit of one MiB and 24 MiB written");

    // A backup, say: it keeps its view of the file, and with it everything that was written since.
    let reader = scratch.raw();
    reader.execute_batch("BEGIN; SELECT count(*) FROM semel_records").expect("a snapshot");
    let held = load(&scratch, &store, 10_000).await;
    assert!(held > 20 * MIB, "{held}: the reader still sees what was there");
    let told = store.hazards().await.expect("looked at");
    assert!(told.iter().any(|hazard| hazard.code == "sqlite-long-log"), "{told:?}");
    assert!(store.get(id(10_000)).await.expect("read").record().is_some(), "nobody else is held up");

    reader.execute_batch("COMMIT").expect("it ends");
    load(&scratch, &store, 20_000).await;
    let after = log_bytes(&scratch);
    assert!(after < 12 * MIB, "{after} bytes of log once the reader is gone");
    for number in 30_000..30_500 {
        assert!(is_done(&insert(&store, number, &claimed(number)).await));
    }
    assert!(store.hazards().await.expect("looked at").iter().all(|hazard| hazard.code != "sqlite-long-log"));
}
