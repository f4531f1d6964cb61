//! Requests that wait for another node.

use crate::server::{Schema, connect};
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::time::Duration;
use tokio::time::timeout;

const TIMEOUT: Duration = Duration::from_mins(2);

async fn opened(schema: &Schema, parameters: &str) -> Store {
    Store::open(&schema.url_with(parameters), Options::default()).await.expect("the store opens")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_woken_only_by_another_nodes_write() {
    let schema = Schema::new();
    let (here, there) = (opened(&schema, "").await, opened(&schema, "").await);
    let claim = claimed(1);
    assert!(is_done(&there.write(id(1), Change::Insert(&claim)).await.expect("an answer")));
    let announced = here.changed(id(1)).expect("it listens");
    timeout(TIMEOUT, announced).await.expect("woken as soon as the others know of it, to look again");
    let mut changed = here.changed(id(1)).expect("it listens");
    let early = timeout(Duration::from_millis(300), &mut changed).await;
    assert!(early.is_err(), "woken although nothing was written");
    let write = there.write(id(2), Change::Insert(&claimed(2))).await.expect("an answer");
    assert!(is_done(&write), "another command");
    let early = timeout(Duration::from_millis(300), &mut changed).await;
    assert!(early.is_err(), "woken by a write to another command");
    let done = finished(&claim, "paid");
    let written = there.write(id(1), Change::Replace(Unchanged::of(&claim), &done)).await.expect("an answer");
    assert!(is_done(&written));
    timeout(TIMEOUT, changed).await.expect("woken by the write");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_waiters_are_woken_if_notifications_may_be_missed() {
    let schema = Schema::new();
    let here = opened(&schema, "").await;
    timeout(TIMEOUT, here.changed(id(1)).expect("it listens")).await.expect("announced");
    let changed = here.changed(id(1)).expect("it listens");
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1";
    let listening = format!("LISTEN semel_{}", schema.name);
    let ended = connect().await.query(end, &[&listening]).await.expect("an answer");
    assert_eq!(ended.len(), 1, "one connection listens");
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
    let schema = Schema::new();
    let without_listening = opened(&schema, "&listen=off").await;
    assert!(without_listening.changed(id(1)).is_none());
    assert!(!without_listening.capabilities().notifies);
    assert!(
        without_listening
            .hazards()
            .await
            .expect("looked at")
            .iter()
            .all(|found| found.code != "postgres-no-notifications")
    );
}
