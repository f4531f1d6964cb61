//! Event counters, and sums per period.

use super::{Node, begun, paid};
use crate::world::{Lite, RACERS, World, with_effects};
use semel_core::time::Time;
use semel_tx::BoxError;
use semel_tx::patterns::{BucketCounter, Counted, EventCounter, Inbox, PatternError};
use semel_tx::sqlite::rusqlite::Connection;
use std::time::Duration;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

fn days() -> BucketCounter {
    BucketCounter::new("revenue", Duration::from_millis(DAY_MS)).expect("a width")
}

fn day(number: u64) -> Time {
    Time::from_millis(number * DAY_MS + 5)
}

fn all(tx: &Connection) -> Vec<(u64, i64)> {
    let found = days().buckets_blocking(tx, day(0), day(100)).expect("read");
    found.into_iter().map(|(start, sum)| (start.as_millis() / DAY_MS, sum)).collect()
}

async fn operations(world: &Lite) -> i64 {
    world.ask("SELECT count(*) FROM {o:counter_operations}").await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_counts_once_before_and_after_a_compaction() {
    let world: Lite = with_effects().await;
    let events = EventCounter::new("downloads");
    let tx = begun(&world);
    for (id, amount, is_new) in [("e-1", 5, true), ("e-2", 7, true), ("e-1", 5, false)] {
        assert_eq!(events.add_blocking(&tx, id, amount).expect("entered"), is_new, "{id}");
    }
    let other = events.add_blocking(&tx, "e-1", 6);
    assert!(matches!(other, Err(PatternError::Mismatch(_))), "{other:?}");
    assert_eq!(events.value_blocking(&tx).expect("read"), 12);
    tx.execute_batch("COMMIT").expect("committed");
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(events.compact(&mut *connection, 10).await.expect("compacted"), 2);
    let tx = begun(&world);
    assert_eq!(events.add_blocking(&tx, "e-2", 7).ok(), Some(false), "its id is still there");
    assert_eq!(events.add_blocking(&tx, "e-3", 1).ok(), Some(true));
    tx.execute_batch("COMMIT").expect("committed");
    assert_eq!(events.value_blocking(&tx).expect("read"), 13);
    assert_eq!(events.value(&mut *connection).await.expect("read"), 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_counts_in_the_first_period_that_it_names() {
    let world: Lite = with_effects().await;
    let tx = begun(&world);
    let first = days().add_blocking(&tx, "e-1", 5, day(1)).expect("counted");
    assert_eq!(first, Counted { value: 5, is_new: true });
    let retry = days().add_blocking(&tx, "e-1", 5, day(2)).expect("an answer");
    assert!(!retry.is_new, "{retry:?}");
    assert_eq!(days().add_blocking(&tx, "e-2", 2, day(1)).expect("counted").value, 7);
    assert_eq!(days().add_blocking(&tx, "e-3", 9, day(3)).expect("counted").value, 9);
    let other = days().add_blocking(&tx, "e-3", 8, day(3));
    assert!(matches!(other, Err(PatternError::Mismatch(_))), "{other:?}");
    tx.execute_batch("COMMIT").expect("committed");
    assert_eq!(all(&tx), [(1, 7), (3, 9)]);
    let mut transaction = world.begin().await;
    let late = days().add(&mut *transaction, "e-2", 2, day(1)).await.expect("an answer");
    assert_eq!(late, Counted { value: 7, is_new: false }, "both forms recognise each other's operations");
}

#[tokio::test(flavor = "multi_thread")]
async fn counting_is_undone_with_the_work_around_it() {
    let world: Lite = with_effects().await;
    let node = Node::on(&world).await;
    let count = |tx: &Connection| -> Result<(), BoxError> {
        EventCounter::new("downloads").add_blocking(tx, "e-1", 5)?;
        days().add_blocking(tx, "e-1", 5, day(1))?;
        Ok(())
    };
    let failed = node.run("key-1", move |tx, _| {
        count(tx)?;
        Err("after all".into())
    });
    assert!(failed.await.is_err());
    assert_eq!(operations(&world).await, 0);
    let swallowed = node.run("key-2", move |tx, _| {
        let failed = Inbox::new("billing").once_blocking(tx, &crate::world::message("m-1", "5"), |tx, _| {
            count(tx)?;
            Err::<(), BoxError>("the card was declined".into())
        });
        assert!(matches!(failed, Err(PatternError::Work(_))), "{failed:?}");
        Ok(paid())
    });
    swallowed.await.expect("an answer");
    assert_eq!((operations(&world).await, all(&begun(&world))), (0, Vec::new()));
    let counted = node.run("key-3", move |tx, _| {
        count(tx)?;
        Ok(paid())
    });
    counted.await.expect("an answer");
    assert_eq!((operations(&world).await, all(&begun(&world))), (2, vec![(1, 5)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_threads_have_exact_sums() {
    let world: Lite = with_effects().await;
    let firsts: u64 = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let world = &world;
                scope.spawn(move || {
                    let (tx, events) = (begun(world), EventCounter::new("downloads"));
                    let is_first = events.add_blocking(&tx, "shared", 7).expect("entered");
                    events.add_blocking(&tx, format!("own-{racer}"), 1).expect("entered");
                    let of_day = days().add_blocking(&tx, "shared", 7, day(racer % 4)).expect("counted");
                    days().add_blocking(&tx, format!("own-{racer}"), 1, day(9)).expect("counted");
                    tx.execute_batch("COMMIT").expect("committed");
                    u64::from(is_first) + 100 * u64::from(of_day.is_new)
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
    });
    assert_eq!(firsts, 101, "one of each");
    let (tx, own_count) = (begun(&world), i64::try_from(RACERS).expect("few"));
    assert_eq!(EventCounter::new("downloads").value_blocking(&tx).expect("read"), own_count + 7);
    let found = all(&tx);
    assert_eq!((found.len(), found[0].1, found[1]), (2, 7, (9, own_count)), "{found:?}");
}
