//! An erased response is in no row of any table, and the answer names where it may remain.

use crate::server::{Schema, connect};
use semel_core::machine::{self, Erasure, Unchanged};
use semel_core::store::{Change, RemainingCopies, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::records::{NOW, claimed, finished, id, is_done, stamp};
use std::path::Path;

const SECRET: &str = "SECRET-OF-ADA;";

/// Stores a response of about this many bytes that repeats the secret, and erases it in the end.
async fn stored(store: &Store, number: u64, bytes: usize) -> semel_core::record::Record {
    let body: Vec<u8> = SECRET.bytes().cycle().take(bytes).collect();
    let claim = claimed(number);
    let done = finished(&claim, body);
    assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    let written = store.write(id(number), Change::Replace(Unchanged::of(&claim), &done)).await;
    assert!(is_done(&written.expect("an answer")));
    done
}

async fn erase(store: &Store, number: u64, record: &semel_core::record::Record, erasure: Erasure) {
    let erased = machine::erase(record, erasure, stamp(NOW + 3)).expect("it has an outcome").next;
    let written = store.write(id(number), Change::Replace(Unchanged::of(record), &erased)).await;
    assert!(is_done(&written.expect("an answer")));
}

/// Whether a row of the schema's tables contains the secret, as text or among its bytes.
async fn is_in_tables(schema: &Schema) -> bool {
    let client = connect().await;
    let sql = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = $1";
    let tables = client.query(sql, &[&schema.name]).await.expect("tables");
    assert!(tables.len() > 2, "the store's tables");
    let digits = SECRET.bytes().fold(String::new(), |digits, byte| format!("{digits}{byte:02x}"));
    let mut is_found = false;
    for table in tables {
        let sql = format!("SELECT t::text FROM {}.{} t", schema.name, table.get::<_, String>(0));
        for row in client.query(&sql, &[]).await.expect("rows") {
            let row: String = row.get(0);
            is_found |= row.contains(SECRET) || row.contains(&digits);
        }
    }
    is_found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_response_is_left_in_no_row() {
    let schema = Schema::new();
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    // In the row itself, compressed, and beside the table.
    let sizes = [60, 900, 9_000, 900_000];
    for (number, bytes) in (1..).zip(sizes) {
        for (number, erasure) in [(2 * number, Erasure::Response), (2 * number + 1, Erasure::Record)] {
            let record = stored(&store, number, bytes).await;
            assert!(is_in_tables(&schema).await, "before, it can be found");
            erase(&store, number, &record, erasure).await;
            assert!(!is_in_tables(&schema).await, "{bytes} bytes, {erasure:?}");
        }
    }
    let RemainingCopies::MayRemain(remnants_text) = store.scrub().await.expect("scrubbed") else {
        panic!("dead rows remain")
    };
    assert!(remnants_text.contains(&format!("VACUUM FULL {}.records", schema.name)), "{remnants_text}");
    assert!(remnants_text.contains("write-ahead log"), "{remnants_text}");
}

/// Whether a file below the folder contains the secret.
fn is_in_files(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).any(|path| {
        if path.is_dir() {
            return is_in_files(&path);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
    })
}

/// The statements of `RemainingCopies` and the guide about PostgreSQL's own files.
#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_keep_an_erased_response_until_the_table_is_rewritten() {
    if !PostgresServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "erased");
    let server = PostgresServer::start(folder.join("server"));
    let store = Store::open(&server.url(), Options::default()).await.expect("the store opens");
    for number in 1..=20 {
        let record = stored(&store, number, 60).await;
        erase(&store, number, &record, Erasure::Response).await;
    }
    let is_in_data = || {
        server.sql("CHECKPOINT");
        let path = server.sql("SELECT current_setting('data_directory')");
        is_in_files(&Path::new(path.trim()).join("base"))
    };
    server.sql("VACUUM semel.records");
    assert!(is_in_data(), "VACUUM frees space and overwrites nothing; otherwise the guide is outdated");
    server.sql("VACUUM FULL semel.records");
    assert!(!is_in_data(), "the rewritten table has none of it");
    store.close().await;
}
