//! Every answer contains the store's time, and records are judged by it.

use crate::harness::Subject;
use crate::scene::{
    DRIFT, HOUR, START, assert_stored, attempt, command, command_under, finish, first, insert, paid, policy,
    read, refused, stamp, swap, token,
};
use semel_core::machine::{self, Begin, Decision, NewAttempt, Reply, Unchanged};
use semel_core::policy::PolicySettings;
use semel_core::store::{Change, ClockSource, Count, Filter, Store};
use semel_core::time::Time;
use std::time::Duration;

/// Every answer contains the store's time, also after it was set forwards and back by years.
pub async fn every_answer_carries_the_stores_time(subject: Subject) {
    const YEAR: Duration = Duration::from_hours(24 * 365);
    let store = &**subject.store();
    for (n, now) in (0..).zip([START, START + 3 * YEAR, START - YEAR, START + HOUR]) {
        subject.set_time(now).await;
        for (question, answered_at) in times(store, n * 10, now).await {
            assert!(
                answered_at >= now && answered_at <= now + DRIFT,
                "{question} answered at {answered_at:?}; the store's time was {now:?}"
            );
        }
    }
}

async fn times(store: &dyn Store, n: u64, now: Time) -> Vec<(&'static str, Time)> {
    let (one, marker) = (command(n), command(n + 1));
    let record = first(&one, token(n), now);
    let write = finish(&record, paid(), now);
    let stale = Unchanged::of(&record);
    vec![
        ("get of nothing", store.get(one.id).await.expect("an answer").now),
        ("insert", store.write(one.id, Change::Insert(&record)).await.expect("an answer").now()),
        ("a refused insert", store.write(one.id, Change::InsertMarker).await.expect("an answer").now()),
        ("get", store.get(one.id).await.expect("an answer").now),
        ("swap", store.write(one.id, Change::Replace(stale, &write.next)).await.expect("an answer").now()),
        (
            "a refused swap",
            store.write(one.id, Change::Replace(stale, &write.next)).await.expect("an answer").now(),
        ),
        ("find", store.find(one.operation_id).await.expect("an answer").0),
        ("find of nothing", store.find(marker.operation_id).await.expect("an answer").0),
        ("page", store.page(&Filter::default(), None, 5).await.expect("an answer").now),
        ("due", store.due(None, 5).await.expect("an answer").now),
        ("count", store.count(Count::Records, 5).await.expect("an answer").now),
        ("a refused removal", store.write(one.id, Change::Remove(stale)).await.expect("an answer").now()),
        ("removal", {
            let expect = Unchanged::of(&write.next);
            store.write(one.id, Change::Remove(expect)).await.expect("an answer").now()
        }),
        ("insert of a marker", store.write(marker.id, Change::InsertMarker).await.expect("an answer").now()),
        ("markers", store.markers(None, 5).await.expect("an answer").now),
        ("removal of a marker", store.write(marker.id, Change::RemoveMarker).await.expect("an answer").now()),
        (
            "a refused removal of a marker",
            store.write(marker.id, Change::RemoveMarker).await.expect("an answer").now(),
        ),
    ]
}

/// A lease is dead by the store's time: when it is over, and if it ends later than any lease can.
pub async fn a_lease_is_judged_by_the_stores_time(subject: Subject) {
    let store = &**subject.store();
    let command = command(1);
    let record = first(&command, token(1), START);
    subject.set_time(START).await;
    insert(store, &command, &record).await;
    let new_attempt = NewAttempt { token: token(2), begin: Begin::Processing };
    let moments = [(START, false, 0), (START + 2 * HOUR, true, 1), (START - 100 * HOUR, true, 0)];
    for (now, is_dead, due_count) in moments {
        subject.set_time(now).await;
        let reading = read(store, &command).await;
        let decision = machine::decide(reading.found(), &command.command(), new_attempt, stamp(reading.now));
        let in_progress = matches!(decision, Decision::Answer(Reply::InProgress));
        assert_eq!(in_progress, !is_dead, "at {:?}", reading.now);
        let due = store.due(None, 5).await.expect("an answer");
        assert_eq!(due.items.len(), due_count, "due at {:?}", due.now);
    }
}

/// A refusal contains the time by which its record is judged: no second call is needed.
pub async fn a_refusal_is_judged_by_its_own_time(subject: Subject) {
    let store = &**subject.store();
    let command = command_under(
        1,
        policy().with(|policy| policy.class = semel_core::policy::Class::Downstream).expect("valid"),
    );
    subject.set_time(START).await;
    let running = first(&command, token(1), START);
    insert(store, &command, &running).await;
    subject.set_time(START + 2 * HOUR).await;
    // The request's own time is long out of date.
    let claim = first(&command, token(2), START);
    let written = store.write(command.id, Change::Insert(&claim)).await.expect("an answer");
    let now = written.now();
    refused(store, &command, written.clone(), &running).await;
    let semel_core::store::Written::Refused(shown) = written else { unreachable!("it was refused") };
    swap(store, &command, &attempt(shown.found(), &command, token(2), now)).await;
}

/// Records with the first and the last possible moment keep them, and are due at those moments.
pub async fn the_first_and_the_last_moment_are_kept(subject: Subject) {
    let store = &**subject.store();
    subject.set_time(START).await;
    let last = |policy: &mut PolicySettings| {
        policy.lease = Duration::from_millis(u64::MAX);
        (policy.ttl, policy.denied_ttl) = (2 * policy.lease, 2 * policy.lease);
    };
    let endless = policy().with(last).expect("valid");
    let cases = [
        (command(1), Time::from_millis(0)),
        (command(2), Time::MAX),
        (command_under(3, endless.clone()), Time::from_millis(0)),
        (command_under(4, endless), START),
        (command(5), Time::from_millis(u64::MAX / 2)),
        (command(6), Time::from_millis(u64::MAX / 2 + 1)),
    ];
    for (command, now) in &cases {
        let record = first(command, token(1), *now);
        insert(store, command, &record).await;
        assert_stored(store, command, &record).await;
    }
    let due = store.due(None, 10).await.expect("an answer");
    let due: Vec<_> = due.items.iter().map(|item| item.id).collect();
    assert_eq!(due, [cases[0].0.id], "only the lease from the first moment is over");
    if store.capabilities().clock != ClockSource::One {
        subject.set_time(Time::MAX).await;
        assert_eq!(
            store.due(None, 10).await.expect("an answer").items.len(),
            cases.len(),
            "at the end of time"
        );
        subject.set_time(Time::from_millis(0)).await;
        assert_eq!(store.due(None, 10).await.expect("an answer").items, [], "at the beginning of time");
        assert_eq!(read(store, &command(9)).await.now, Time::from_millis(0));
    }
}
