//! The smallest and the largest entry.

use crate::world::Keys;
use semel_core::codec;
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Filter, Kind, Store as _, Written};
use semel_redis::Store;
use semel_test_support::{RedisReply, RedisServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_entry_is_read_back_and_a_larger_refused() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("&timeout=120").await;
    let max = usize::try_from(store.capabilities().entry_bytes_max).expect("it fits");
    let claim = claimed(1);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    // The fields before an entry count as well.
    let largest = finished(&claim, vec![0xa5; max - 4096]);
    let larger = finished(&claim, vec![0xa5; max]);
    assert!(codec::encode_record(&larger).len() > max);
    let refused =
        store.write(id(1), Change::Replace(Unchanged::of(&claim), &larger)).await.expect_err("too large");
    assert_eq!(refused.kind(), Kind::TooLarge, "{refused}");
    assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&claim), "nothing was written");
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
}

/// A script copies its data several times and blocks the server meanwhile, so a long value is read
/// separately.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_record_is_read_without_scripts_and_written_normally() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "long");
    let server = RedisServer::start(folder.join("server"), &[]);
    let store = Store::open(&server.url()).await.expect("the store opens");
    let claim = claimed(1);
    let long = finished(&claim, vec![0xa5; 1 << 20]);
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    assert!(is_done(
        &store.write(id(1), Change::Replace(Unchanged::of(&claim), &long)).await.expect("an answer")
    ));
    server.ask("CONFIG RESETSTAT");
    assert!(store.get(id(1)).await.expect("an answer").record() == Some(&long));
    let stats = server.ask("INFO commandstats").text();
    assert!(stats.contains("cmdstat_get:calls=1,") && stats.contains("cmdstat_getrange:calls=1,"), "{stats}");
    // One byte is wrong: the record is not overwritten, even by a caller that expects the old value.
    let key = server.ask("KEYS {semel:*}r:*");
    let RedisReply::Array(keys) = key else { panic!("no keys") };
    let key = keys[0].clone().bytes();
    let intact = server.client().ask(&[&b"GET"[..], &key]).bytes();
    let mut damaged = intact.clone();
    damaged[1 << 19] ^= 1;
    server.client().ask(&[&b"SET"[..], &key, &damaged]);
    let remove = Change::Remove(Unchanged::of(&long));
    let refused = store.write(id(1), remove).await.expect("an answer");
    assert!(matches!(&refused, Written::Refused(found) if found.entry.as_ref().is_some_and(Result::is_err)));
    assert_eq!(server.client().ask(&[&b"GET"[..], &key]).bytes().len(), damaged.len(), "it is left alone");
    server.client().ask(&[&b"SET"[..], &key, &intact]);
    let other = claimed(2);
    let refused = store.write(id(1), Change::Remove(Unchanged::of(&other))).await.expect("an answer");
    assert!(matches!(&refused, Written::Refused(found) if found.record() == Some(&long)));
    assert!(is_done(&store.write(id(1), remove).await.expect("an answer")));
    assert_eq!(store.get(id(1)).await.expect("an answer").entry, None);
}
