//! A record changes only if version, token and state are all what the writer read.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    START, assert_stored, bring, command, finish, first, insert, is_done, paid, read, refused, renew,
    reserved, swap, token,
};
use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::store::{Change, Store, Written};
use std::sync::Arc;

/// Brings a record into every state and tries to change and remove it under the conditions of `others`.
async fn never_met(store: &dyn Store, others: impl Fn(&Record) -> Vec<Unchanged>) {
    for (n, state) in (0..).zip(StateName::ALL) {
        let command = command(n);
        let stored = bring(store, state, &command, token(n), START).await;
        let next = first(&command, token(n + 100), START);
        for expect in others(&stored) {
            let swapped = store.write(command.id, Change::Replace(expect, &next)).await.expect("an answer");
            refused(store, &command, swapped, &stored).await;
            let removed = store.write(command.id, Change::Remove(expect)).await.expect("an answer");
            refused(store, &command, removed, &stored).await;
        }
    }
}

/// If only the version differs, nothing is written.
pub async fn another_version_alone_is_refused(subject: Subject) {
    subject.set_time(START).await;
    let others = |record: &Record| {
        let (token, state) = (record.token(), record.state_name());
        let versions =
            [0, record.version() - 1, record.version() + 1, record.version() + (1 << 32), u64::MAX];
        versions.map(|version| Unchanged { version, token, state }).to_vec()
    };
    never_met(&**subject.store(), others).await;
}

/// If only the token differs, even in one bit, nothing is written.
pub async fn another_token_alone_is_refused(subject: Subject) {
    subject.set_time(START).await;
    let others = |record: &Record| {
        let (version, state) = (record.version(), record.state_name());
        let bits = record.token().bits();
        [0, bits ^ 1, bits ^ (1 << 63), bits ^ (1 << 64), bits ^ (1 << 127), !bits]
            .map(semel_core::record::Token::from_random)
            .map(|token| Unchanged { version, token, state })
            .to_vec()
    };
    never_met(&**subject.store(), others).await;
}

/// If only the state differs, nothing is written.
pub async fn another_state_alone_is_refused(subject: Subject) {
    subject.set_time(START).await;
    let others = |record: &Record| {
        let (version, token) = (record.version(), record.token());
        let states = StateName::ALL.into_iter().filter(|state| *state != record.state_name());
        states.map(|state| Unchanged { version, token, state }).collect()
    };
    never_met(&**subject.store(), others).await;
}

/// If there is no entry, a swap writes nothing: a finish never inserts.
pub async fn a_swap_without_a_record_inserts_nothing(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command(1);
    let lost = first(&command, token(1), START);
    let write = finish(&lost, paid(), START);
    for written in [
        store.write(command.id, Change::from(&write)).await,
        store.write(command.id, Change::Remove(Unchanged::of(&lost))).await,
    ] {
        let Written::Refused(shown) = written.expect("an answer") else {
            panic!("a swap of nothing was applied")
        };
        assert_eq!(shown.entry, None, "a refusal shows that there is no entry");
    }
    assert_eq!(read(store, &command).await.entry, None);
}

/// A swap changes only the record that it names.
pub async fn a_swap_changes_one_record_only(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    // All with the same token, version and state: only the ID distinguishes them.
    let records: Vec<Record> = (0..5).map(|n| first(&command(n), token(7), START)).collect();
    for (n, record) in (0..).zip(&records) {
        insert(store, &command(n), record).await;
    }
    let write = finish(&records[2], paid(), START);
    swap(store, &command(2), &write).await;
    let gone =
        store.write(command(3).id, Change::Remove(Unchanged::of(&records[3]))).await.expect("an answer");
    assert!(is_done(&gone), "{gone:?}");
    for n in [0, 1, 4] {
        assert_stored(store, &command(n), &records[usize::try_from(n).expect("small")]).await;
    }
    assert_stored(store, &command(2), &write.next).await;
    assert_eq!(read(store, &command(3)).await.entry, None);
}

/// Of many writes computed from the same record, one is applied, and all others are shown it.
pub async fn of_many_writes_from_one_reading_one_is_applied(subject: Subject) {
    subject.set_time(START).await;
    let handles = subject.two_handles().await;
    for round in 0..20 {
        let command_id = command(round).id;
        let stored = reserved(&command(round), token(round), START);
        insert(&*handles[0], &command(round), &stored).await;
        let write = |n: u64| {
            let store = Arc::clone(&handles[usize::from(n.is_multiple_of(2))]);
            let stored = stored.clone();
            async move {
                // Each write has another time, so that every content differs.
                let write = renew(&stored, START + std::time::Duration::from_millis(n));
                let written = store.write(command_id, Change::from(&write)).await.expect("an answer");
                (write.next, written)
            }
        };
        let answers = at_once((0..16).map(write)).await;
        let winners: Vec<_> = answers.iter().filter(|(_, written)| is_done(written)).collect();
        assert_eq!(winners.len(), 1, "how many writes from one reading were applied");
        for (_, written) in &answers {
            if let Written::Refused(shown) = written {
                assert_eq!(shown.record(), Some(&winners[0].0), "a loser is shown the winner");
            }
        }
        assert_stored(&*handles[0], &command(round), &winners[0].0).await;
    }
}

/// However many tasks write one record in turn, every acknowledged write is counted in its version.
pub async fn no_write_that_was_answered_as_done_is_lost(subject: Subject) {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 12;
    subject.set_time(START).await;
    let handles = subject.two_handles().await;
    insert(&*handles[0], &command(1), &first(&command(1), token(1), START)).await;
    let writer = |n: u64| {
        let store = Arc::clone(&handles[usize::from(n.is_multiple_of(2))]);
        async move {
            let command = command(1);
            let mut reading = read(&*store, &command).await;
            let mut done = 0;
            while done < WRITES {
                let write = renew(reading.record().expect("it stays"), START);
                match store.write(command.id, Change::from(&write)).await.expect("an answer") {
                    Written::Done { .. } => {
                        done += 1;
                        reading = read(&*store, &command).await;
                    }
                    Written::Refused(shown) => reading = shown,
                }
            }
        }
    };
    at_once((0..WRITERS).map(writer)).await;
    let version = read(&*handles[1], &command(1)).await.record().map(Record::version);
    assert_eq!(version, Some(1 + WRITERS * WRITES), "one version for each write");
}
