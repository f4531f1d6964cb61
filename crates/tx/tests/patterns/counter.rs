//! Numbers that count every operation once.

use crate::world::{RACERS, World, race};
use semel_core::time::Time;
use semel_tx::patterns::{BucketCounter, Counted, Counter, EventCounter, PatternError};
use std::sync::Arc;
use std::time::Duration;

on_both!(
    an_operation_is_counted_once,
    rolled_back_events_are_not_counted,
    another_amount_for_the_same_operation_is_refused,
    sixty_four_tasks_leave_an_exact_balance,
    an_overflow_is_refused_and_changes_nothing,
    events_are_counted_once_during_compaction,
    compacted_operations_are_recognised_within_the_window,
    an_operation_counts_in_the_period_of_its_event,
);

const WAIT: Duration = Duration::from_mins(1);
const MINUTE: u64 = 60_000;

async fn add<W: World>(world: &W, counter: &Counter, id: &str, amount: i64) -> Counted {
    let mut transaction = world.begin().await;
    let counted = counter.add(&mut *transaction, id, amount).await.expect("counted");
    W::commit(transaction).await.expect("committed");
    counted
}

async fn an_operation_is_counted_once<W: World>() {
    let world = W::new().await;
    let counter = Counter::new("balance").tables(world.tables());
    assert_eq!(add(&world, &counter, "op-1", 5).await, Counted { value: 5, is_new: true });
    assert_eq!(add(&world, &counter, "op-2", -2).await, Counted { value: 3, is_new: true });
    assert_eq!(add(&world, &counter, "op-1", 5).await, Counted { value: 3, is_new: false });
    let other = Counter::new("other").tables(world.tables());
    assert_eq!(add(&world, &other, "op-1", 9).await, Counted { value: 9, is_new: true });
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(counter.value(&mut *connection).await.expect("read"), 3);
}

/// The increment and the operation's ID are committed or rolled back with the caller's transaction.
async fn rolled_back_events_are_not_counted<W: World>() {
    let world = W::new().await;
    let counter = Counter::new("balance").tables(world.tables());
    let mut transaction = world.begin().await;
    counter.add(&mut *transaction, "op-1", 5).await.expect("counted");
    drop(transaction);
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(counter.value(&mut *connection).await.expect("read"), 0);
    drop(connection);
    assert_eq!(add(&world, &counter, "op-1", 5).await, Counted { value: 5, is_new: true });
    let mut connection = world.pool().acquire().await.expect("a connection");
    let outside = counter.add(&mut *connection, "op-2", 5).await;
    assert!(matches!(outside, Err(PatternError::NoTransaction)), "{outside:?}");
}

async fn another_amount_for_the_same_operation_is_refused<W: World>() {
    let world = W::new().await;
    let (exact, events) =
        (Counter::new("a").tables(world.tables()), EventCounter::new("b").tables(world.tables()));
    let mut transaction = world.begin().await;
    exact.add(&mut *transaction, "op-1", 5).await.expect("counted");
    events.add(&mut *transaction, "op-1", 5).await.expect("counted");
    let refused = exact.add(&mut *transaction, "op-1", 6).await;
    assert!(matches!(refused, Err(PatternError::Mismatch(_))), "{refused:?}");
    let refused = events.add(&mut *transaction, "op-1", 6).await;
    assert!(matches!(refused, Err(PatternError::Mismatch(_))), "{refused:?}");
    W::commit(transaction).await.expect("the transaction is intact");
    assert_eq!(world.ask("SELECT value FROM {o:counter_sums}").await, 5);
}

/// Every operation is sent by four tasks; every fifth transaction is rolled back.
async fn sixty_four_tasks_leave_an_exact_balance<W: World>() {
    let world = Arc::new(W::new().await);
    let counter = Counter::new("balance").tables(world.tables()).wait(WAIT);
    race(|racer| {
        let (world, counter) = (Arc::clone(&world), counter.clone());
        async move {
            for step in 0..4 {
                let number = racer / 4 + step * 16;
                let mut transaction = world.begin().await;
                let amount = i64::try_from(number).expect("small") + 1;
                counter.add(&mut *transaction, &format!("op-{number}"), amount).await.expect("counted");
                if (racer + step).is_multiple_of(5) {
                    continue;
                }
                W::commit(transaction).await.expect("committed");
            }
        }
    })
    .await;
    // Of the four tasks of each operation, at most one was rolled back.
    let expected: i64 = (1..=i64::try_from(RACERS).expect("small")).sum();
    assert_eq!(world.ask("SELECT value FROM {o:counter_sums}").await, expected);
}

async fn an_overflow_is_refused_and_changes_nothing<W: World>() {
    let world = W::new().await;
    let counter = Counter::new("balance").tables(world.tables());
    add(&world, &counter, "op-1", i64::MAX).await;
    let mut transaction = world.begin().await;
    assert!(counter.add(&mut *transaction, "op-2", 1).await.is_err());
    W::commit(transaction).await.expect("the transaction is intact");
    assert_eq!(world.ask("SELECT value FROM {o:counter_sums}").await, i64::MAX);
    assert_eq!(world.ask("SELECT count(*) FROM {o:counter_operations}").await, 1);
}

/// Some tasks count, some compact, some read. A sum never decreases, and the last one is exact.
async fn events_are_counted_once_during_compaction<W: World>() {
    let world = Arc::new(W::new().await);
    let events = EventCounter::new("downloads").tables(world.tables()).wait(WAIT);
    race(|racer| {
        let (world, events) = (Arc::clone(&world), events.clone());
        async move {
            let mut highest = 0;
            for step in 0..4 {
                if racer.is_multiple_of(8) {
                    let mut connection = world.pool().acquire().await.expect("a connection");
                    events.compact(&mut *connection, 7).await.expect("folded");
                    let value = events.value(&mut *connection).await.expect("read");
                    assert!(value >= highest, "{value} after {highest}");
                    highest = value;
                    continue;
                }
                let mut transaction = world.begin().await;
                events
                    .add(&mut *transaction, &format!("op-{}", racer % 16 + step * 16), 1)
                    .await
                    .expect("counted");
                W::commit(transaction).await.expect("committed");
            }
        }
    })
    .await;
    // The tasks that only compact are missing: 0 and 8 of 16.
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(events.value(&mut *connection).await.expect("read"), 14 * 4);
    while events.compact(&mut *connection, 7).await.expect("folded") == 7 {}
    assert_eq!(events.value(&mut *connection).await.expect("read"), 14 * 4);
    drop(connection);
    assert_eq!(world.ask("SELECT value FROM {o:counter_sums}").await, 14 * 4);
}

async fn compacted_operations_are_recognised_within_the_window<W: World>() {
    let world = W::new().await;
    let events = EventCounter::new("downloads").tables(world.tables()).window(Duration::from_hours(24));
    let count = async |id: &str| {
        let mut transaction = world.begin().await;
        let is_new = events.add(&mut *transaction, id, 1).await.expect("counted");
        W::commit(transaction).await.expect("committed");
        is_new
    };
    let mut connection = world.pool().acquire().await.expect("a connection");
    for number in 0..5 {
        assert!(count(&format!("op-{number}")).await);
    }
    assert_eq!(events.compact(&mut *connection, 100).await.expect("folded"), 5);
    assert!(!count("op-1").await, "its id is still there");
    assert!(count("op-5").await);
    world.sql("UPDATE {o:counter_operations} SET counted_at = counted_at - 100000000").await;
    assert_eq!(events.purge(&mut *connection, 3).await.expect("purged"), 3);
    assert_eq!(
        events.purge(&mut *connection, 3).await.expect("purged"),
        2,
        "what is not folded stays, however old"
    );
    assert_eq!(events.value(&mut *connection).await.expect("read"), 6);
}

async fn an_operation_counts_in_the_period_of_its_event<W: World>() {
    let world = W::new().await;
    let counter =
        BucketCounter::new("revenue", Duration::from_millis(MINUTE)).expect("a width").tables(world.tables());
    let at = |minute: u64, second: u64| Time::from_millis(minute * MINUTE + second * 1_000);
    let count = async |id: &str, amount, time| {
        let mut transaction = world.begin().await;
        let counted = counter.add(&mut *transaction, id, amount, time).await.expect("counted");
        W::commit(transaction).await.expect("committed");
        counted
    };
    assert_eq!(count("op-1", 5, at(10, 59)).await, Counted { value: 5, is_new: true });
    assert_eq!(count("op-2", 7, at(10, 0)).await, Counted { value: 12, is_new: true });
    assert_eq!(count("op-3", 1, at(12, 1)).await, Counted { value: 1, is_new: true });
    // A retry that passes the time of the attempt instead of the event's.
    assert!(!count("op-1", 5, at(11, 0)).await.is_new);
    let mut connection = world.pool().acquire().await.expect("a connection");
    let buckets = counter.buckets(&mut *connection, at(10, 30), at(12, 30)).await.expect("read");
    assert_eq!(buckets, [(at(10, 0), 12), (at(12, 0), 1)]);
    assert_eq!(counter.buckets(&mut *connection, at(11, 0), at(12, 0)).await.expect("read"), []);
    assert!(BucketCounter::new("revenue", Duration::ZERO).is_err());
}
