//! An erased response is under no key of the server, and the answer names where it may remain.

use crate::world::Keys;
use semel_core::machine::{self, Erasure, Unchanged};
use semel_core::record::Record;
use semel_core::store::{Change, RemainingCopies, Store as _};
use semel_redis::Store;
use semel_test_support::{RedisClient, RedisReply, RedisServer, ScratchDir};
use semel_testkit::records::{NOW, claimed, finished, id, is_done, stamp};
use std::path::Path;

const SECRET: &str = "SECRET-OF-ADA;";

fn is_in(bytes: &[u8]) -> bool {
    bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes())
}

/// Stores a response of about this many bytes that repeats the secret.
async fn stored(store: &Store, number: u64, bytes: usize) -> Record {
    let body: Vec<u8> = SECRET.bytes().cycle().take(bytes).collect();
    let claim = claimed(number);
    let done = finished(&claim, body);
    assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
    let written = store.write(id(number), Change::Replace(Unchanged::of(&claim), &done)).await;
    assert!(is_done(&written.expect("an answer")));
    done
}

async fn erase(store: &Store, number: u64, record: &Record, erasure: Erasure) {
    let erased = machine::erase(record, erasure, stamp(NOW + 3)).expect("it has an outcome").next;
    let written = store.write(id(number), Change::Replace(Unchanged::of(record), &erased)).await;
    assert!(is_done(&written.expect("an answer")));
}

/// Every byte of a reply of any type.
fn flattened(reply: RedisReply) -> Vec<u8> {
    match reply {
        RedisReply::Array(parts) => parts.into_iter().flat_map(flattened).collect(),
        RedisReply::Bytes(bytes) => bytes,
        _ => Vec::new(),
    }
}

/// Whether a key of the server contains the secret in its name or its value.
fn is_in_keys(client: &mut RedisClient) -> bool {
    let RedisReply::Array(keys) = client.ask(&["KEYS", "*"]) else { panic!("a list of keys") };
    assert!(!keys.is_empty(), "the store's keys");
    keys.into_iter().any(|key| {
        let key = key.bytes();
        let ask: &[&[u8]] = match client.ask(&[&b"TYPE"[..], &key]).text().as_str() {
            "string" => &[b"GET", &key],
            "hash" => &[b"HGETALL", &key],
            "zset" => &[b"ZRANGE", &key, b"0", b"-1"],
            "set" => &[b"SMEMBERS", &key],
            "none" => return false,
            other => panic!("a key of type {other}"),
        };
        is_in(&key) || is_in(&flattened(client.ask(ask)))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erased_response_is_left_in_no_key() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "erase");
    let server = RedisServer::start(folder.join("server"), &[]);
    let keys = Keys::at(&server.url());
    let store = keys.open("").await;
    for (number, bytes) in (1..).zip([60, 900, 900_000]) {
        for (number, erasure) in [(2 * number, Erasure::Response), (2 * number + 1, Erasure::Record)] {
            let record = stored(&store, number, bytes).await;
            assert!(is_in_keys(&mut keys.client()), "before, it can be found");
            erase(&store, number, &record, erasure).await;
            assert!(!is_in_keys(&mut keys.client()), "{bytes} bytes, {erasure:?}");
        }
    }
    let RemainingCopies::MayRemain(remnants_text) = store.scrub().await.expect("scrubbed") else {
        panic!("the log has it")
    };
    assert!(remnants_text.contains("BGREWRITEAOF") && remnants_text.contains("snapshots"), "{remnants_text}");
    store.close().await;
}

/// Whether a file below the folder contains the secret.
fn is_in_files(folder: &Path) -> bool {
    std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).any(|path| {
        if path.is_dir() { is_in_files(&path) } else { is_in(&std::fs::read(&path).unwrap_or_default()) }
    })
}

/// The statements of `RemainingCopies` and the guide about the server's own files.
#[tokio::test(flavor = "multi_thread")]
async fn the_append_only_file_keeps_an_erased_response_until_rewritten() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "erased");
    let server = RedisServer::start(folder.join("server"), &[]);
    let keys = Keys::at(&server.url());
    let store = keys.open("").await;
    let record = stored(&store, 1, 60).await;
    erase(&store, 1, &record, Erasure::Response).await;
    let files = folder.join("server");
    assert!(is_in_files(&files), "the log has every write");
    server.ask("BGREWRITEAOF");
    loop {
        let persistence = server.ask("INFO persistence").text();
        let is_idle = |line: &&str| persistence.contains(*line);
        if ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"].iter().all(is_idle) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    // The previous files are removed in the background.
    let is_gone = async {
        while is_in_files(&files) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), is_gone)
        .await
        .expect("the rewritten file has none of it");
    store.close().await;
}
