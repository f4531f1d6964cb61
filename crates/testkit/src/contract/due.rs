//! All due records are listed and nothing else, the longest overdue first, in chunks.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    HOUR, START, bring, command, command_under, first, insert, is_done, policy, renew, stamp, swap, token,
};
use crate::walk;
use semel_core::machine::{self, Due};
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, ClockSource, Count, Item, Store};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

fn due_times(items: &[Item]) -> Vec<Option<Time>> {
    items.iter().map(|item| item.record().and_then(Record::due_at)).collect()
}

/// Records of every state are due at their time and not before, the longest overdue first, in chunks of any size.
pub async fn the_longest_overdue_records_come_first(subject: Subject) {
    let store = &**subject.store();
    subject.set_time(START).await;
    let mut records = Vec::new();
    for n in 0..70_u32 {
        // Not in the order of creation or of IDs; some at the same moment.
        let now = START + HOUR * (n * 37 % 60);
        let command = command(u64::from(n));
        let state = StateName::ALL[n as usize % 7];
        records.push((command.id, bring(store, state, &command, token(u64::from(n)), now).await));
    }
    let mut moments: Vec<Time> = records.iter().filter_map(|(_, record)| record.due_at()).collect();
    moments.sort_unstable();
    for now in [
        moments[0] - Duration::from_mins(30),
        moments[0],
        moments[moments.len() / 2],
        moments[moments.len() - 1],
    ] {
        subject.set_time(now).await;
        let mut expected: Vec<_> =
            records.iter().filter(|(_, record)| record.due_at().is_some_and(|at| at <= now)).collect();
        expected.sort_unstable_by_key(|(id, _)| *id);
        for limit in [1, 4, 100] {
            let due = walk::due(store, limit).await;
            let times = due_times(&due);
            assert!(times.is_sorted(), "in chunks of {limit} at {now:?}: {times:?}");
            let mut found: Vec<_> = due.iter().map(|item| item.id).collect();
            found.sort_unstable();
            let expected: Vec<_> = expected.iter().map(|(id, _)| *id).collect();
            assert_eq!(found, expected, "what is due at {now:?}, in chunks of {limit}");
        }
    }
}

/// A record that was renewed, ended or postponed is due at its new time and no longer at its old one.
pub async fn a_write_moves_a_record_to_its_new_time(subject: Subject) {
    let store = &**subject.store();
    subject.set_time(START).await;
    let (moved, stays) = (command(1), command(2));
    let record = first(&moved, token(1), START);
    insert(store, &moved, &record).await;
    insert(store, &stays, &first(&stays, token(2), START)).await;
    let later = START + 2 * HOUR;
    subject.set_time(later).await;
    assert_eq!(walk::due(store, 10).await.len(), 2);
    let renewed = renew(&record, later);
    swap(store, &moved, &renewed).await;
    let due: Vec<_> = walk::due(store, 10).await.iter().map(|item| item.id).collect();
    assert_eq!(due, [stays.id], "a live lease is not due");

    subject.set_time(later + 2 * HOUR).await;
    let unknown = machine::lapse(&renewed.next, stamp(later + 2 * HOUR)).expect("its lease has expired");
    swap(store, &moved, &unknown).await;
    assert_eq!(walk::due(store, 10).await.len(), 2, "a probe is due at once");
    let for_people = machine::postpone(&unknown.next, None, later + 2 * HOUR).expect("it is unknown");
    swap(store, &moved, &for_people).await;
    subject.set_time(later + 900 * HOUR).await;
    let due: Vec<_> = walk::due(store, 10).await.iter().map(|item| item.id).collect();
    assert_eq!(due, [stays.id], "a record left to an operator is never due");
}

/// An entry that is due in a moment is not due yet.
pub async fn nothing_is_due_before_its_time(subject: Subject) {
    let store = &**subject.store();
    let skewed = policy().with(|policy| policy.skew = 2 * HOUR).expect("valid");
    insert(store, &command(1), &first(&command_under(1, skewed), token(1), START)).await;
    if store.capabilities().clock == ClockSource::One {
        subject.set_time(START + 2 * HOUR).await;
    } else {
        subject.set_time(START + 3 * HOUR - Duration::from_millis(1)).await;
    }
    assert_eq!(walk::due(store, 10).await, [], "the skew is not over");
    subject.set_time(START + 3 * HOUR).await;
    assert_eq!(walk::due(store, 10).await.len(), 1, "it is over at exactly that moment");
}

/// Ten thousand expired records are swept in chunks, each exactly once, and nothing else is removed.
pub async fn ten_thousand_are_swept_in_chunks(subject: Subject) {
    const OLD: u64 = 10_000;
    const WRITERS: u64 = 50;
    const CHUNK: usize = 500;
    let store = subject.store();
    subject.set_time(START).await;
    let fill = |writer: u64| {
        let store = Arc::clone(store);
        async move {
            for n in (writer * OLD / WRITERS)..((writer + 1) * OLD / WRITERS) {
                given_up(&*store, n).await;
            }
        }
    };
    at_once((0..WRITERS).map(fill)).await;
    for n in OLD..OLD + 10 {
        bring(&**store, StateName::Succeeded, &command(n), token(n), START).await;
    }
    subject.set_time(START + 3 * HOUR).await;
    let (mut swept, mut chunks) = (0, 0);
    loop {
        let due = store.due(None, CHUNK).await.expect("an answer");
        assert!(due.items.len() <= CHUNK, "{} in a chunk of {CHUNK}", due.items.len());
        chunks += 1;
        assert!(chunks <= OLD, "the sweep never ends");
        swept += due.items.len() as u64;
        if due.items.is_empty() && due.next.is_none() {
            break;
        }
        let sweeper = |items: &[Item]| sweep(Arc::clone(store), items.to_vec(), due.now);
        at_once(due.items.chunks(20).map(sweeper)).await;
    }
    assert_eq!(swept, OLD, "how many were swept");
    assert_eq!(store.count(Count::Records, OLD).await.expect("an answer").count, 10, "what is left");
}

/// Claimed and abandoned: it counts as absent after its retention.
async fn given_up(store: &dyn Store, n: u64) {
    let command = command_under(n, policy().with(|policy| policy.ttl = 2 * HOUR).expect("valid"));
    let claim = first(&command, token(n), START);
    insert(store, &command, &claim).await;
    let abandoned = machine::abandon(&claim, token(n), stamp(START)).expect("its own claim");
    swap(store, &command, &abandoned).await;
}

async fn sweep(store: Arc<dyn Store>, items: Vec<Item>, now: Time) {
    for item in items {
        let record = item.record().expect("a record");
        assert_eq!(machine::due(record, now), Due::Purge);
        let expect = machine::purge(record, now).expect("past its time");
        let written = store.write(item.id, Change::Remove(expect)).await.expect("an answer");
        assert!(is_done(&written), "one sweeper, one removal: {written:?}");
    }
}
