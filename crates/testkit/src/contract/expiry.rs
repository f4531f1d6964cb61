//! The end of a record: it is removed once, and its successor stays.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    HOUR, START, attempt, bring, command_under, first, insert, is_done, policy, read, refused, stamp, swap,
    token,
};
use semel_core::machine::{self, Unchanged};
use semel_core::policy::{AfterExpiry, Policy};
use semel_core::record::StateName;
use semel_core::store::{Change, Count, Filter, Store};
use std::sync::Arc;

fn forgetful() -> Policy {
    policy().with(|policy| policy.after_expiry = AfterExpiry::RunAsNew).expect("valid")
}

/// If an expiring sweeper, a purging sweeper and a request that reuses the key race, exactly one succeeds.
pub async fn of_expire_purge_and_reuse_exactly_one_wins(subject: Subject) {
    let handles = subject.two_handles().await;
    for round in 0..20 {
        subject.set_time(START).await;
        let command = command_under(round, forgetful());
        let done = bring(&*handles[0], StateName::Succeeded, &command, token(round), START).await;
        let later = START + 49 * HOUR;
        subject.set_time(later).await;
        let expire = machine::expire(&done, stamp(later)).expect("past its time");
        let purge = machine::purge(&done, later).expect("its retention is over");
        let found = machine::Found::Record(&done);
        let reuse = attempt(found, &command, token(round + 1_000), later);
        let id = command.id;
        let race = |n: usize| {
            let store: Arc<dyn Store> = Arc::clone(&handles[n % 2]);
            let (expire, reuse) = (expire.clone(), reuse.clone());
            async move {
                let written = match n % 3 {
                    0 => store.write(id, Change::from(&expire)).await,
                    1 => store.write(id, Change::Remove(purge)).await,
                    _ => store.write(id, Change::from(&reuse)).await,
                };
                (n % 3, is_done(&written.expect("an answer")))
            }
        };
        let answers = at_once((0..12).map(race)).await;
        let winners: Vec<usize> = answers.into_iter().filter(|(_, won)| *won).map(|(n, _)| n).collect();
        assert_eq!(winners.len(), 1, "the winners (0 expire, 1 purge, 2 reuse): {winners:?}");
        let stored = read(&*handles[0], &command).await;
        let expected = [Some(&expire.next), None, Some(&reuse.next)][winners[0]];
        assert_eq!(stored.record(), expected, "the winner's write is stored");
        if let Some(record) = stored.record() {
            let left = handles[0].write(id, Change::Remove(Unchanged::of(record))).await.expect("an answer");
            assert!(is_done(&left), "{left:?}");
        }
    }
}

/// A purge computed before the key was reused is refused.
pub async fn a_purge_of_a_reused_key_is_refused(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command_under(1, forgetful());
    let done = bring(store, StateName::Succeeded, &command, token(1), START).await;
    let later = START + 49 * HOUR;
    subject.set_time(later).await;
    let purge = machine::purge(&done, later).expect("its retention is over");
    let reuse = attempt(read(store, &command).await.found(), &command, token(2), later);
    swap(store, &command, &reuse).await;
    let written = store.write(command.id, Change::Remove(purge)).await.expect("an answer");
    refused(store, &command, written, &reuse.next).await;
}

/// A removed record is in no query, and its key is free.
pub async fn a_removed_record_is_gone_from_every_query(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    let command = command_under(1, policy());
    let tombstone = bring(store, StateName::Expired, &command, token(1), START).await;
    let later = START + 300 * HOUR;
    subject.set_time(later).await;
    let purge = machine::purge(&tombstone, later).expect("the tombstone has expired");
    let written = store.write(command.id, Change::Remove(purge)).await.expect("an answer");
    assert!(is_done(&written), "{written:?}");

    assert_eq!(read(store, &command).await.entry, None, "get");
    assert_eq!(store.find(command.operation_id).await.expect("an answer").1, None, "find");
    let page = store.page(&Filter::default(), None, 10).await.expect("an answer");
    assert_eq!(page.items, [], "page");
    assert_eq!(store.due(None, 10).await.expect("an answer").items, [], "due");
    for what in [Count::Records, Count::Caller(command.caller_hash), Count::State(StateName::Expired)] {
        assert_eq!(store.count(what, 10).await.expect("an answer").count, 0, "{what:?}");
    }
    insert(store, &command, &first(&command, token(2), later)).await;
}

/// The second removal of one record is refused: of two sweepers, one succeeds.
pub async fn of_many_removals_one_is_done(subject: Subject) {
    let handles = subject.two_handles().await;
    subject.set_time(START).await;
    for round in 0..10 {
        let command = command_under(round, policy());
        let tombstone = bring(&*handles[0], StateName::Expired, &command, token(round), START).await;
        let (id, expect) = (command.id, Unchanged::of(&tombstone));
        let remove = |n: usize| {
            let store = Arc::clone(&handles[n % 2]);
            async move { is_done(&store.write(id, Change::Remove(expect)).await.expect("an answer")) }
        };
        let done = at_once((0..8).map(remove)).await;
        assert_eq!(done.into_iter().filter(|done| *done).count(), 1, "how many removed one record");
    }
}
