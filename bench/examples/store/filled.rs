//! Files that are filled once and kept under `target/bench` for later runs of the same build.

use semel_bench::lifecycle::{claim, finish, id};
use semel_core::codec;
use semel_core::store::{Backend, Change, OpenOptions, Store, Written};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::runtime::Runtime;

/// Twice the store's batch size: one batch gathers while the other is written.
const FILLERS: u64 = 2048;
/// A file of another schema is not reused.
const SCHEMA: &str = include_str!("../../../crates/sql/src/sqlite/schema/1.sql");

/// The store that is measured.
static BACKEND: &dyn Backend = &semel_sql::sqlite::Backend;

/// Opens the store in a file.
pub(crate) fn open(runtime: &Runtime, path: &Path) -> Result<Arc<dyn Store>, Box<dyn Error>> {
    let address = path.to_str().ok_or("the path of the file is no text")?;
    Ok(runtime.block_on(BACKEND.open(address, &OpenOptions::default()))?)
}

pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target")
}

/// A file with the first `count` commands finished. Creates it if it does not exist.
pub(crate) fn filled(runtime: &Runtime, records: u64) -> Result<PathBuf, Box<dyn Error>> {
    let directory = target().join("bench");
    std::fs::create_dir_all(&directory)?;
    let form = crc32fast::hash(&[SCHEMA.as_bytes(), &codec::encode_record(&finish(&claim(0)).next)].concat());
    let path = directory.join(format!("store-{form:08x}-{records}.db"));
    if path.exists() {
        return Ok(path);
    }
    let started = Instant::now();
    let unfinished = directory.join(format!("unfinished-{}.db", std::process::id()));
    let store = open(runtime, &unfinished)?;
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..FILLERS)
        .map(|_| {
            let (store, next) = (store.clone(), next.clone());
            runtime.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= records {
                        break;
                    }
                    let finished = finish(&claim(number));
                    let written = store.write(id(number), Change::Insert(&finished.next)).await;
                    assert!(matches!(written, Ok(Written::Done { .. })), "{written:?}");
                }
            })
        })
        .collect();
    for task in tasks {
        runtime.block_on(task)?;
    }
    runtime.block_on(store.close());
    std::fs::rename(unfinished, &path)?;
    println!(
        "\nfilled a file with {records} records in {:.0} s, for this run and later ones",
        started.elapsed().as_secs_f64()
    );
    Ok(path)
}
