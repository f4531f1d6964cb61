//! What operators see of inboxes: the store counts their marks.

use crate::world::{Lite, Pg, World, message, process, with_effects};
use semel_core::store::{Backend, InboxCensus, Inspection, OpenOptions, Store};
use semel_tx::patterns::Inbox;
use std::sync::Arc;
use std::time::Duration;

const WEEK: Duration = Duration::from_hours(7 * 24);

/// The store as a node opens it, and read-only.
async fn stores(backend: &dyn Backend, address: &str) -> (Arc<dyn Store>, Box<dyn Inspection>) {
    let node = backend.open(address, &OpenOptions::default()).await.expect("it opens");
    (node, backend.inspect(address).await.expect("it is there"))
}

async fn on_postgres(world: &Pg) -> [InboxCensus; 2] {
    let url = world.store_url();
    let (node, look) = stores(&semel_sql::postgres::Backend, url.split_once(':').expect("a scheme").1).await;
    counted(node, look).await
}

async fn on_sqlite(world: &Lite) -> [InboxCensus; 2] {
    let (node, look) = stores(&semel_sql::sqlite::Backend, &world.path().to_string_lossy()).await;
    counted(node, look).await
}

async fn counted(node: Arc<dyn Store>, look: Box<dyn Inspection>) -> [InboxCensus; 2] {
    let count =
        async |store: &dyn Store| store.inboxes(WEEK).await.expect("counted").expect("there are inboxes");
    let both = [count(&*node).await, count(&*look).await];
    node.close().await;
    both
}

/// Marks of two groups, some of them old.
async fn marked<W: World>() -> W {
    let world: W = with_effects().await;
    for group in ["billing", "mail"] {
        let inbox = Inbox::new(group).tables(world.tables());
        for number in 0..5 {
            process(&world, &inbox, &message(&format!("m-{number}"), "5")).await.expect("ran");
        }
    }
    let eight_days = 8 * 24 * 60 * 60 * 1_000_i64;
    let old = format!(
        "UPDATE {{o:inbox_marks}} SET processed_at = processed_at - {eight_days} \
         WHERE consumer_group = 'mail' AND message_id IN ('m-1', 'm-3')"
    );
    world.sql(&old).await;
    world
}

fn assert_counted(census: &InboxCensus) {
    let of = |group: &str| census.inboxes[&(group.to_owned(), "payments".to_owned())];
    let (billing, mail) = (of("billing"), of("mail"));
    assert_eq!((census.inboxes.len(), census.other_marks), (2, 0));
    assert_eq!((billing.marks, billing.overdue, mail.marks, mail.overdue), (5, 0, 5, 2));
    assert!(census.now.since(billing.oldest) < Duration::from_hours(1), "{census:?}");
    assert!(census.now.since(mail.oldest) > WEEK && census.now.since(mail.newest) < WEEK, "{census:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn marks_are_counted_by_group_and_topic() {
    for census in on_postgres(&marked().await).await.iter().chain(&on_sqlite(&marked().await).await) {
        assert_counted(census);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_marks_there_is_nothing_to_count() {
    let (postgres, sqlite) = (Pg::new().await, Lite::new().await);
    for census in on_postgres(&postgres).await.iter().chain(&on_sqlite(&sqlite).await) {
        assert!(census.inboxes.is_empty() && census.now.as_millis() > 0, "{census:?}");
    }
}

/// More than one statement reads, in an inbox that spans two statements.
#[tokio::test(flavor = "multi_thread")]
async fn every_part_of_a_large_inbox_is_counted_once() {
    let world = Pg::new().await;
    for (group, topic, count) in [("a", "t", 7_000), ("b", "t", 13_000), ("b", "u", 1), ("c", "t", 10_000)] {
        let sql = format!(
            "INSERT INTO {{o:inbox_marks}} SELECT '{group}', '{topic}', 'm-' || number, 'x', number FROM generate_series(1, {count}) AS number"
        );
        world.sql(&sql).await;
    }
    for census in on_postgres(&world).await {
        let marks: Vec<u64> = census.inboxes.values().map(|inbox| inbox.marks).collect();
        assert_eq!(marks, [7_000, 13_000, 1, 10_000]);
        let largest = census.inboxes[&("b".to_owned(), "t".to_owned())];
        assert_eq!(
            (largest.oldest.as_millis(), largest.newest.as_millis(), largest.overdue),
            (1, 13_000, 13_000)
        );
    }
}
