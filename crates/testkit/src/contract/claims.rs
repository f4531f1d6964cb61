//! A key has one claim, however many requests arrive at the same moment.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    DIFFERENT, START, TestCommand, assert_stored, bring, command, first, insert, is_done, read, refused,
    stamp, token,
};
use semel_core::machine::{self, Begin, Decision, NewAttempt, Reply};
use semel_core::record::StateName;
use semel_core::store::{Change, Written};
use std::sync::Arc;

/// Of many claims at the same moment, from two nodes, one wins, and all others are shown the winner.
pub async fn of_many_claims_one_wins_and_every_other_is_shown_it(subject: Subject) {
    subject.set_time(START).await;
    let handles = subject.two_handles().await;
    for round in 0..20 {
        let claim = |n: u64| {
            let store = Arc::clone(&handles[usize::from(n.is_multiple_of(2))]);
            async move {
                let command = command(round);
                let record = first(&command, token(round * 100 + n), START);
                let written = store.write(command.id, Change::Insert(&record)).await.expect("an answer");
                (record, written)
            }
        };
        let answers = at_once((0..24).map(claim)).await;
        let winners: Vec<_> = answers.iter().filter(|(_, written)| is_done(written)).collect();
        assert_eq!(winners.len(), 1, "how many claims of one key won");
        let winner = &winners[0].0;
        for (_, written) in &answers {
            if let Written::Refused(shown) = written {
                assert_eq!(shown.record(), Some(winner), "a loser is shown the winner");
            }
        }
        assert_stored(&*handles[1], &command(round), winner).await;
    }
}

/// A claim on an existing record, in any state, is refused and changes nothing.
pub async fn a_claim_on_an_existing_record_changes_nothing(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    for (n, state) in (0..).zip(StateName::ALL) {
        let command = command(n);
        let stored = bring(store, state, &command, token(n), START).await;
        let late = first(&command, token(n + 100), START);
        let written = store.write(command.id, Change::Insert(&late)).await.expect("an answer");
        refused(store, &command, written, &stored).await;
    }
}

/// A record is read exactly as it was written, in every state.
pub async fn a_record_is_read_as_it_was_written_in_every_state(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    for (n, state) in (0..).zip(StateName::ALL) {
        let command = command(n);
        let written = bring(store, state, &command, token(n), START).await;
        assert_eq!(written.state_name(), state);
        assert_stored(store, &command, &written).await;
    }
}

/// An unused ID has no entry, whatever exists under other IDs.
pub async fn an_unused_key_has_no_record(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    assert_eq!(read(store, &command(1)).await.entry, None, "a fresh store is empty");
    insert(store, &command(2), &first(&command(2), token(2), START)).await;
    assert_eq!(read(store, &command(1)).await.entry, None);
}

/// A claim with another payload, while the first is in flight, is a mismatch by the refusal alone.
pub async fn a_refusal_shows_the_payload_that_is_in_flight(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let original = command(1);
    insert(store, &original, &first(&original, token(1), START)).await;
    let other = TestCommand { fingerprint: DIFFERENT, ..command(1) };
    let late = first(&other, token(2), START);
    let written = store.write(other.id, Change::Insert(&late)).await.expect("an answer");
    let Written::Refused(shown) = written else { panic!("two payloads were claimed under one key") };
    let new_attempt = NewAttempt { token: token(2), begin: Begin::Processing };
    let decision = machine::decide(shown.found(), &other.command(), new_attempt, stamp(shown.now));
    assert_eq!(decision, Decision::Answer(Reply::Mismatch));
}
