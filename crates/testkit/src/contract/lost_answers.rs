//! A write whose answer was lost is recognised by reading again, and a late copy of it changes nothing.

use crate::faults::{Fault, Faulty, LateResult, Question, Script};
use crate::harness::Subject;
use crate::scene::{
    HOUR, START, assert_stored, attempt, bring, command, finish, first, insert, paid, read, renew, stamp,
    swap, token,
};
use semel_core::machine::{self, Found, Unchanged, Verdict, Write};
use semel_core::record::StateName;
use semel_core::store::{Change, Error, Kind, Store as _, Written};
use std::fmt::Debug;
use std::sync::Arc;

fn faulty(subject: &Subject, question: Question, fault: Fault) -> Faulty {
    Faulty::new(Arc::clone(subject.store()), Script::of(question, [fault]))
}

fn ambiguous(answer: Result<impl Debug, Error>) {
    assert_eq!(answer.expect_err("the answer was lost").kind(), Kind::Ambiguous);
}

/// A claim whose answer was lost is recognised by its token.
pub async fn a_claim_whose_answer_was_lost_is_recognised(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Insert, Fault::FailAfter);
    let command = command(1);
    let claim = attempt(Found::Nothing, &command, token(1), START);
    ambiguous(store.write(command.id, Change::Insert(&claim.next)).await);
    let reread = read(&store, &command).await;
    assert_eq!(machine::applied_claim(&claim, reread.found()), Some(&claim.next));
    // A duplicate's claim is not mistaken for it.
    let duplicate = attempt(Found::Nothing, &command, token(2), START);
    assert_eq!(machine::applied_claim(&duplicate, reread.found()), None);
}

/// A swap whose answer was lost is recognised by its content, until it is overwritten.
pub async fn a_swap_whose_answer_was_lost_is_recognised(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Swap, Fault::FailAfter);
    let command = command(1);
    let running = first(&command, token(1), START);
    insert(&store, &command, &running).await;
    let renewal = renew(&running, START + HOUR);
    ambiguous(store.write(command.id, Change::from(&renewal)).await);
    assert!(machine::was_applied(&renewal, read(&store, &command).await.found()));
    // Sent again, it is refused and shown its own result.
    let again = store.write(command.id, Change::from(&renewal)).await.expect("an answer");
    let Written::Refused(shown) = again else { panic!("a write was applied twice") };
    assert!(machine::was_applied(&renewal, shown.found()));
    swap(&store, &command, &renew(&renewal.next, START)).await;
    assert!(!machine::was_applied(&renewal, read(&store, &command).await.found()));
}

/// A removal whose answer was lost has happened: there is no entry.
pub async fn a_removal_whose_answer_was_lost_has_happened(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Remove, Fault::FailAfter);
    let command = command(1);
    let tombstone = bring(&store, StateName::Expired, &command, token(1), START).await;
    ambiguous(store.write(command.id, Change::Remove(Unchanged::of(&tombstone))).await);
    assert_eq!(read(&store, &command).await.entry, None);
}

/// A claim that arrives after its owner gave up, and after another claim, is refused.
pub async fn a_claim_that_arrives_late_is_refused_by_its_successor(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Insert, Fault::Late);
    let command = command(1);
    let late = attempt(Found::Nothing, &command, token(1), START);
    ambiguous(store.write(command.id, Change::Insert(&late.next)).await);
    let reread = read(&store, &command).await;
    assert_eq!(machine::applied_claim(&late, reread.found()), None, "it has not arrived");
    let fresh = attempt(reread.found(), &command, token(2), START);
    insert(&store, &command, &fresh.next).await;
    assert_late_copy_ignored(&store, &fresh).await;
    assert_stored(&store, &command, &fresh.next).await;
}

/// A second copy of a claim changes nothing, whatever happened to the record since.
pub async fn a_second_copy_of_a_claim_changes_nothing(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Insert, Fault::Twice);
    let command = command(1);
    let claim = attempt(Found::Nothing, &command, token(1), START);
    insert(&store, &command, &claim.next).await;
    let done = finish(&claim.next, paid(), START);
    swap(&store, &command, &done).await;
    assert_late_copy_ignored(&store, &done).await;
    assert_stored(&store, &command, &done.next).await;
}

/// A second copy of a finish changes nothing, also after a verdict that kept the owner's token.
pub async fn a_second_copy_of_a_swap_changes_nothing(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Swap, Fault::Twice);
    let command = command(1);
    let running = first(&command, token(1), START);
    insert(&store, &command, &running).await;
    let doubt = finish(&running, semel_core::classify::Ending::InDoubt, START);
    swap(&store, &command, &doubt).await;
    let verdict = machine::resolve(&doubt.next, Verdict::Refused, stamp(START)).expect("the owner ended it");
    swap(&store, &command, &verdict).await;
    assert_late_copy_ignored(&store, &verdict).await;
    assert_stored(&store, &command, &verdict.next).await;
}

/// A second copy of a removal does not remove the next record.
pub async fn a_second_copy_of_a_removal_spares_the_next_record(subject: Subject) {
    subject.set_time(START).await;
    let store = faulty(&subject, Question::Remove, Fault::Twice);
    let command = command(1);
    let tombstone = bring(&store, StateName::Expired, &command, token(1), START).await;
    let removed =
        store.write(command.id, Change::Remove(Unchanged::of(&tombstone))).await.expect("an answer");
    assert!(matches!(removed, Written::Done { .. }), "{removed:?}");
    let next = attempt(Found::Nothing, &command, token(2), START);
    insert(&store, &command, &next.next).await;
    assert_late_copy_ignored(&store, &next).await;
    assert_stored(&store, &command, &next.next).await;
}

async fn assert_late_copy_ignored(store: &Faulty, stored: &Write) {
    let late = store.deliver().await.expect("a write is in flight").expect("an answer");
    let LateResult::Entry(Written::Refused(shown)) = late else {
        panic!("a late copy was applied: {late:?}")
    };
    assert_eq!(shown.record(), Some(&stored.next), "a refusal shows the stored entry");
}
