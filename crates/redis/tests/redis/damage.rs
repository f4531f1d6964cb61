//! Damaged values, and foreign keys.

use crate::world::Keys;
use semel_core::id::OperationId;
use semel_core::machine::Unchanged;
use semel_core::store::{Backend as _, Change, Count, Filter, Store as _};
use semel_redis::Backend;
use semel_testkit::records::{claimed, finished, id, is_done};

/// For any single wrong bit, the record is present, and either correct or unreadable. It is never absent, and
/// never an error.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_record_is_present_and_unreadable() {
    let Some(keys) = Keys::new() else { return };
    // Other tests keep the server busy with long records.
    let store = keys.open("&timeout=60").await;
    let claim = claimed(1);
    let done = finished(&claim, "paid");
    assert!(is_done(&store.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    assert!(is_done(
        &store.write(id(1), Change::Replace(Unchanged::of(&claim), &done)).await.expect("an answer")
    ));
    let (key, mut client) = (keys.only_key("r:*"), keys.client());
    let value = client.ask(&["GET", &key]).bytes();
    let mut unreadable = 0;
    // Every bit before the entry, and one of each byte of the entry.
    for bit in (0..value.len() * 8).filter(|bit| *bit < 126 * 8 || bit % 8 == 3) {
        let mut damaged = value.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        client.ask(&[&b"SET"[..], key.as_bytes(), &damaged]);
        let reading = store.get(id(1)).await.unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        let entry = reading.entry.clone().unwrap_or_else(|| panic!("bit {bit}: it is there"));
        assert!(entry.is_err() || reading.record() == Some(&done), "bit {bit}: {entry:?}");
        unreadable += u32::from(entry.is_err());
        let is_of_id = (25 * 8..57 * 8).contains(&bit);
        assert!(!is_of_id || entry.is_err(), "bit {bit}: it names another command");
        let (_, found) =
            store.find(OperationId::of(&id(1))).await.unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        let found = found.unwrap_or_else(|| panic!("bit {bit}: it is found"));
        assert!(found.entry.is_err() || found.record() == Some(&done) && !is_of_id, "bit {bit}");
        let refused = store
            .write(id(1), Change::Insert(&claim))
            .await
            .unwrap_or_else(|error| panic!("bit {bit}: {error}"));
        assert!(!is_done(&refused), "bit {bit}: it is not written over");
    }
    assert!(unreadable >= 32 * 8, "the command id, and every bit of the entry: {unreadable}");
    client.ask(&[&b"SET"[..], key.as_bytes(), &value]);
    assert_eq!(store.get(id(1)).await.expect("an answer").record(), Some(&done));
}

/// A record with a damaged head is still listed, so that operators find it.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_a_damaged_head_stays_listed() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    let (key, mut client) = (keys.only_key("r:*"), keys.client());
    let value = client.ask(&["GET", &key]).bytes();
    for at in [0, 30] {
        let mut damaged = value.clone();
        damaged[at] ^= 0x80;
        client.ask(&[&b"SET"[..], key.as_bytes(), &damaged]);
        let page = store.page(&Filter::default(), None, 9).await.expect("an answer");
        assert_eq!(page.items.len(), 1, "byte {at}");
        assert!(page.items[0].entry.is_err(), "byte {at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_keys_are_reported_and_the_rest_is_checked() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("&buckets=2").await;
    for number in 0..4 {
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
    }
    let mut client = keys.client();
    let state = claimed(1).state_name().number();
    let list = |bucket: u32| format!("{{{}:{bucket}}}s{state}", keys.prefix);
    // Another type of value is stored under the key of a bucket's list.
    let bucket = u32::from(client.ask(&["EXISTS", &list(0)]).number() == 0);
    let listed = client.ask(&["ZCARD", &list(bucket)]).number();
    client.ask(&["DEL", &list(bucket)]);
    client.ask(&["SET", &list(bucket), "somebody else's"]);
    let foreign = format!("{{{}:0}}r:00000000000000000000000000000000", keys.prefix);
    client.ask(&["LPUSH", &foreign, "somebody else's"]);
    let url = keys.url_with("");
    let inspection =
        Backend.inspect(url.split_once(':').expect("a URL").1).await.expect("it may be looked at");
    let findings = inspection.verify().await.expect("it does not give up");
    for key in [&list(bucket), &foreign] {
        assert!(findings.iter().any(|finding| finding.contains(key)), "{key}: {findings:?}");
    }
    let left = 4 - u64::try_from(listed).expect("a count");
    assert_eq!(inspection.count(Count::Records, 9).await.expect("an answer").count, left);
    let page = inspection.page(&Filter::default(), None, 9).await.expect("an answer");
    assert_eq!(page.items.len() as u64, left);
    assert_eq!(
        inspection.census().await.expect("an answer").states().map(|(_, count)| count).sum::<u64>(),
        left
    );
}
