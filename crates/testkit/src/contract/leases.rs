//! A dead owner is replaced once, and cannot write afterwards.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    HOUR, START, attempt, bring, command, finish, insert, is_done, paid, read, refused, renew, reserved,
    stamp, swap, token,
};
use semel_core::machine::{self, Unchanged, Verdict};
use semel_core::record::StateName;
use semel_core::store::{Change, Written};
use std::sync::Arc;

/// Of many requests that find a claim with an expired lease, one takes it over.
pub async fn a_dead_claim_is_taken_over_once(subject: Subject) {
    let handles = subject.two_handles().await;
    for round in 0..10 {
        subject.set_time(START).await;
        insert(&*handles[0], &command(round), &reserved(&command(round), token(round), START)).await;
        subject.set_time(START + 2 * HOUR).await;
        let taker = |n: u64| {
            let store = Arc::clone(&handles[usize::from(n.is_multiple_of(2))]);
            async move {
                let command = command(round);
                let reading = read(&*store, &command).await;
                let found = reading.record().expect("the dead claim is stored");
                // A reader after the winner's write finds a live lease: there is no attempt to take over.
                if found.token() != token(round) {
                    return false;
                }
                let write = attempt(reading.found(), &command, token(1_000 + n), reading.now);
                is_done(&store.write(command.id, Change::from(&write)).await.expect("an answer"))
            }
        };
        let won = at_once((0..16).map(taker)).await;
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "how many took one dead claim over");
        let stored = read(&*handles[1], &command(round)).await;
        assert_eq!(stored.record().map(|record| (record.attempt(), record.version())), Some((2, 2)));
    }
}

/// A replaced owner can neither start, renew, finish, abandon nor remove: the successor's record stays.
pub async fn a_stale_owner_changes_nothing_of_its_successors(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command(1);
    let stale = reserved(&command, token(1), START);
    insert(store, &command, &stale).await;
    let later = START + 2 * HOUR;
    subject.set_time(later).await;
    let takeover = attempt(read(store, &command).await.found(), &command, token(2), later);
    swap(store, &command, &takeover).await;
    // Also after the successor's version has passed the one that the stale owner would write next.
    let started = machine::start(&stale, token(1), stamp(START)).expect("its own claim");
    let renewed = renew(&takeover.next, later);
    for stored in [&takeover.next, &renewed.next] {
        if stored.version() > takeover.next.version() {
            swap(store, &command, &renewed).await;
        }
        let late = [
            started.clone(),
            renew(&stale, START),
            finish(&started.next, paid(), START),
            renew(&started.next, START),
            machine::abandon(&stale, token(1), stamp(START)).expect("its own claim"),
        ];
        for write in late {
            let written = store.write(command.id, Change::from(&write)).await.expect("an answer");
            refused(store, &command, written, stored).await;
        }
        for expect in [Unchanged::of(&stale), Unchanged::of(&started.next)] {
            let written = store.write(command.id, Change::Remove(expect)).await.expect("an answer");
            refused(store, &command, written, stored).await;
        }
    }
}

/// A late finish meets the verdict on its attempt: same token, another version and state.
pub async fn a_late_finish_sees_the_verdict_and_can_be_repeated(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command(1);
    let running = bring(store, StateName::Processing, &command, token(1), START).await;
    let later = START + 4 * HOUR;
    subject.set_time(later).await;
    let unknown = machine::lapse(&running, stamp(later)).expect("its lease has expired");
    swap(store, &command, &unknown).await;
    let absent = Verdict::NotApplied { asked_at: later };
    let denied = machine::reconcile(&unknown.next, absent, stamp(later)).expect("the quiet period is over");
    swap(store, &command, &denied).await;

    let late = finish(&running, paid(), later);
    let written = store.write(command.id, Change::from(&late)).await.expect("an answer");
    refused(store, &command, written.clone(), &denied.next).await;
    let Written::Refused(shown) = written else { unreachable!("it was refused") };
    let again = finish(shown.record().expect("the verdict"), paid(), shown.now);
    swap(store, &command, &again).await;
}
