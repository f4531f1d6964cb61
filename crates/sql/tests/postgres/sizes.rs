//! The smallest and the largest entry.

use crate::server::Schema;
use semel_core::codec;
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Filter, Kind, Store as _, Written};
use semel_sql::postgres::{Options, Store};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::process::Command;

const PART: &str = "SEMEL_SIZES_URL";

/// The record of a command whose entry has exactly this many bytes.
fn of_bytes(number: u64, bytes: usize) -> semel_core::record::Record {
    let claim = claimed(number);
    let mut body = bytes - codec::encode_record(&finished(&claim, Vec::new())).len();
    loop {
        let record = finished(&claim, vec![0xa5; body]);
        match codec::encode_record(&record).len().checked_sub(bytes) {
            Some(0) => return record,
            // Lengths are encoded in as few bytes as possible.
            Some(over) => body -= over,
            None => panic!("no entry has {bytes} bytes"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_body_is_read_back_as_empty() {
    let schema = Schema::new();
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    let claim = claimed(1);
    let empty = finished(&claim, "");
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let written = store.write(id(1), Change::Replace(Unchanged::of(&claim), &empty)).await;
    assert!(is_done(&written.expect("an answer")));
    assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&empty));
}

/// The peak memory use of this process.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// Runs in a separate process, whose memory is measured. Does nothing without its variable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_entries() {
    let Ok(url) = std::env::var(PART) else { return };
    let store = Store::open(&url, Options::default()).await.expect("the store opens");
    let max = usize::try_from(store.capabilities().entry_bytes_max).expect("it fits");
    let claim = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let largest = of_bytes(1, max);
    let before = peak_bytes();
    let written = store.write(id(1), Change::Replace(Unchanged::of(&claim), &largest)).await;
    assert!(is_done(&written.expect("an answer")));
    assert!(
        store.get(id(1)).await.expect("an answer").record() == Some(&largest),
        "it is read back unchanged"
    );
    let page = store.page(&Filter::default(), None, 10).await.expect("an answer");
    assert!(page.items.len() == 1 && page.items[0].record() == Some(&largest));
    // The record that refuses a write is returned, however large it is.
    let refused = store.write(id(1), Change::Insert(&claim)).await.expect("an answer");
    assert!(matches!(&refused, Written::Refused(found) if found.record() == Some(&largest)));
    drop((page, refused));
    let copies = (peak_bytes() - before) / max as u64;
    println!("copies at once: {copies}");
    assert!(copies <= 8, "{copies} copies of the largest entry were held at once");

    let larger = of_bytes(1, max + 1);
    let refused =
        store.write(id(1), Change::Replace(Unchanged::of(&largest), &larger)).await.expect_err("too large");
    assert_eq!(refused.kind(), Kind::TooLarge, "{refused}");
    assert!(store.get(id(1)).await.expect("an answer").record() == Some(&largest), "nothing was written");
    store.close().await;
}

#[test]
fn the_largest_entry_is_read_back_within_bounded_memory() {
    let schema = Schema::new();
    // A statement of 128 MiB takes a while on a busy machine.
    let url = schema.url_with("&timeout=120&connections=2");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "sizes::large_entries", "--nocapture"])
        .env(PART, url)
        .output()
        .expect("it starts");
    let output_text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output_text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(output_text.contains("copies at once"), "{output_text}");
}
