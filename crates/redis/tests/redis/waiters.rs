//! Requests that wait for another node.

use crate::world::Keys;
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Store as _};
use semel_redis::Store;
use semel_test_support::{RedisServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::time::Duration;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_mins(2);

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_only_by_another_nodes_write() {
    let Some(keys) = Keys::new() else { return };
    let (here, there) = (keys.open("").await, keys.open("").await);
    let claim = claimed(1);
    assert!(is_done(&there.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let mut changed = here.changed(id(1)).expect("it listens");
    let other = claimed(2);
    assert!(is_done(&there.write(id(2), Change::Insert(&other)).await.expect("an answer")));
    let done = finished(&other, "paid");
    assert!(is_done(
        &there.write(id(2), Change::Replace(Unchanged::of(&other), &done)).await.expect("an answer")
    ));
    assert!(timeout(Duration::from_millis(300), &mut changed).await.is_err(), "woken by another command");
    let done = finished(&claim, "paid");
    assert!(is_done(
        &there.write(id(1), Change::Replace(Unchanged::of(&claim), &done)).await.expect("an answer")
    ));
    timeout(TIMEOUT, changed).await.expect("woken by the write");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_waiters_are_woken_if_messages_may_be_missed() {
    if !RedisServer::is_installed() {
        return;
    }
    // A separate server: listeners of another one would be woken too.
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "missed");
    let server = RedisServer::start(folder.join("server"), &[]);
    let here = Store::open(&server.url()).await.expect("the store opens");
    let changed = here.changed(id(1)).expect("it listens");
    assert_eq!(server.ask("CLIENT KILL TYPE pubsub").number(), 1, "one connection listens");
    timeout(TIMEOUT, changed).await.expect("woken");
    let again = async {
        while here.changed(id(1)).is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(TIMEOUT, again).await.expect("it listens again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_does_not_listen_says_so() {
    let Some(keys) = Keys::new() else { return };
    let without_listening = keys.open("&notify=off").await;
    assert!(without_listening.changed(id(1)).is_none());
    assert!(!without_listening.capabilities().notifies);
    let hazards = without_listening.hazards().await.expect("looked at");
    assert!(hazards.iter().all(|found| found.code != "redis-no-notifications"), "{hazards:?}");
}
