//! The server's own time to live is a safety net, and is never set on a live record.

use crate::records::{NOW, claimed, command, finished, id, is_done, stamp};
use crate::world::Keys;
use semel_core::machine::{self, Begin, Decision, Found, Ticket, Unchanged};
use semel_core::record::{Record, StateName, Token};
use semel_core::store::{Backend as _, Change, Count, OpenOptions, Store as _};
use semel_redis::{Backend, Store};
use std::time::Duration;

const DAY_MS: i64 = 24 * 3_600_000;

async fn put(store: &Store, from: Option<&Record>, next: &Record) {
    let change = from.map_or(Change::Insert(next), |from| Change::Replace(Unchanged::of(from), next));
    assert!(is_done(&store.write(id(1), change).await.expect("an answer")));
}

fn ttl_of(keys: &Keys) -> i64 {
    keys.client().ask(&["PTTL", &keys.only_key("r:*")]).number()
}

/// Abandoned, so that the next request with the key is another attempt.
fn abandoned(record: &Record) -> Record {
    machine::abandon(record, record.token(), stamp(NOW + 1)).expect("its owner may").next
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_attempt_outlives_the_ttl_of_the_previous_one() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    let claim = claimed(1);
    put(&store, None, &claim).await;
    assert_eq!(ttl_of(&keys), -1, "a claim has no time to live");
    let given_up = abandoned(&claim);
    put(&store, Some(&claim), &given_up).await;
    assert_eq!(given_up.state_name(), StateName::FailedNotReplayable);
    assert!(ttl_of(&keys) >= 7 * DAY_MS, "not before a week after its end");
    // As if nearly all of that time had passed.
    let key = keys.only_key("r:*");
    assert_eq!(keys.client().ask(&["PEXPIRE", &key, "300"]).number(), 1);
    let ticket = Ticket { token: Token::from_random(77), begin: Begin::Processing };
    let Decision::Run(again) = machine::decide(Found::Record(&given_up), &command(1), ticket, stamp(NOW + 2))
    else {
        panic!("the next attempt")
    };
    put(&store, Some(&given_up), &again.next).await;
    assert_eq!(ttl_of(&keys), -1, "a live record has none");
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(
        store.get(id(1)).await.expect("an answer").record(),
        Some(&again.next),
        "the claim is still there"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_removes_an_outcome_only_after_its_tombstone() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    let claim = claimed(1);
    put(&store, None, &claim).await;
    let done = finished(&claim, "paid");
    put(&store, Some(&claim), &done).await;
    let end = done.gone_at().expect("it ends").as_millis();
    let now = store.get(id(1)).await.expect("an answer").now.as_millis();
    let left = i64::try_from(end.saturating_sub(now)).expect("it fits") + 7 * DAY_MS;
    assert!((left - 60_000..=left).contains(&ttl_of(&keys)), "{} of {left}", ttl_of(&keys));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_removes_nothing_if_records_are_archived() {
    let Some(keys) = Keys::new() else { return };
    let url = keys.url_with("");
    let options = OpenOptions { is_archived: true, ..OpenOptions::default() };
    let archived = Backend.open(url.split_once(':').expect("a URL").1, &options).await.expect("it opens");
    let off = keys.open("&ttl=off").await;
    let claim = claimed(1);
    let done = finished(&claim, "paid");
    assert!(is_done(&archived.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let replace = Change::Replace(Unchanged::of(&claim), &done);
    assert!(is_done(&archived.write(id(1), replace).await.expect("an answer")));
    assert_eq!(ttl_of(&keys), -1);
    assert!(is_done(&off.write(id(1), Change::Remove(Unchanged::of(&done))).await.expect("an answer")));
    put(&off, None, &claim).await;
    put(&off, Some(&claim), &done).await;
    assert_eq!(ttl_of(&keys), -1);
}

/// Entries that the server removed are removed from the lists when they are found.
#[tokio::test(flavor = "multi_thread")]
async fn entries_removed_by_the_server_leave_the_lists() {
    let Some(keys) = Keys::new() else { return };
    let store = keys.open("").await;
    put(&store, None, &claimed(1)).await;
    assert_eq!(keys.client().ask(&["DEL", &keys.only_key("r:*")]).number(), 1);
    assert_eq!(store.count(Count::Records, 10).await.expect("an answer").count, 1, "it is still listed");
    let filter = semel_core::store::Filter::default();
    assert_eq!(store.page(&filter, None, 10).await.expect("an answer").items, []);
    assert_eq!(store.count(Count::Records, 10).await.expect("an answer").count, 0);
    put(&store, None, &claimed(1)).await;
    assert_eq!(store.page(&filter, None, 10).await.expect("an answer").items.len(), 1);
}
