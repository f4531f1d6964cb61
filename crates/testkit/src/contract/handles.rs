//! A write acknowledged to one handle is visible to every other.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    START, assert_stored, command, finish, first, insert, is_done, paid, read, renew, swap, token,
};
use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Count, Filter, Setting};
use std::sync::Arc;

/// A write acknowledged to one node is visible at once to the next call of another.
pub async fn a_write_is_seen_at_once_through_another_handle(subject: Subject) {
    subject.set_time(START).await;
    let [here, there] = subject.two_handles().await;
    for n in 0..30 {
        let (writer, reader) = if n % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let command = command(n);
        assert_eq!(read(&**reader, &command).await.entry, None);
        let record = first(&command, token(n), START);
        insert(&**writer, &command, &record).await;
        assert_stored(&**reader, &command, &record).await;
        let done = finish(&record, paid(), START);
        swap(&**reader, &command, &done).await;
        assert_stored(&**writer, &command, &done.next).await;
        let (_, found) = writer.find(command.operation_id).await.expect("an answer");
        assert_eq!(found.as_ref().and_then(|item| item.record()), Some(&done.next));
        let succeeded = Filter { state: Some(StateName::Succeeded), ..Filter::default() };
        assert_eq!(writer.page(&succeeded, None, 5).await.expect("an answer").items.len(), 1);
        assert_eq!(writer.count(Count::Records, 5).await.expect("an answer").count, 1);
        let gone =
            writer.write(command.id, Change::Remove(Unchanged::of(&done.next))).await.expect("an answer");
        assert!(is_done(&gone));
        assert_eq!(read(&**reader, &command).await.entry, None);
    }
    assert_eq!(here.set("a", None, Some(b"1")).await.expect("an answer"), Setting::Done);
    assert_eq!(there.settings().await.expect("an answer").len(), 1);
}

/// A reader never sees an older version than one it has already seen, while others write.
pub async fn readers_never_go_back_in_time(subject: Subject) {
    subject.set_time(START).await;
    let handles = subject.two_handles().await;
    insert(&*handles[0], &command(1), &first(&command(1), token(1), START)).await;
    let task = |n: usize| {
        let (own, other) = (Arc::clone(&handles[n % 2]), Arc::clone(&handles[(n + 1) % 2]));
        async move {
            let command = command(1);
            let mut seen = 0;
            for round in 0..60 {
                let store = if round % 2 == 0 { &own } else { &other };
                let reading = read(&**store, &command).await;
                let record = reading.record().expect("it stays");
                assert!(record.version() >= seen, "version {} after {seen}", record.version());
                seen = record.version();
                if n < 2 {
                    let write = renew(record, START);
                    let written = own.write(command.id, Change::from(&write)).await.expect("an answer");
                    if is_done(&written) {
                        seen = write.next.version();
                    }
                }
            }
        }
    };
    at_once((0..6).map(task)).await;
}

/// A store that notifies of changes notifies of this one; a store that cannot says so, and is polled.
pub async fn a_waiter_is_notified_of_a_change(subject: Subject) {
    subject.set_time(START).await;
    let [here, there] = subject.two_handles().await;
    let record = first(&command(1), token(1), START);
    insert(&*here, &command(1), &record).await;
    let notified = here.changed(command(1).id);
    assert!(
        notified.is_some() || !here.capabilities().notifies,
        "a store that notifies must return a future"
    );
    let Some(notified) = notified else { return };
    // Every store that notifies must report its own node's changes; another node's only if it says so.
    let writer = if here.capabilities().notifies { &there } else { &here };
    let done = finish(&record, paid(), START);
    swap(&**writer, &command(1), &done).await;
    notified.await;
    assert_eq!(read(&*here, &command(1)).await.record().map(Record::version), Some(2));
}
