//! Counts are exact up to the limit that was asked for, and stop there.

use crate::harness::Subject;
use crate::scene::{HOUR, START, bring, command_in, finish, paid, policy, swap, token};
use semel_core::id::CallerHash;
use semel_core::machine::Expect;
use semel_core::record::{Record, StateName};
use semel_core::scope::{Identity, Operation, Scope};
use semel_core::store::{Count, Store};

async fn all_counts_are_right(store: &dyn Store, records: &[Record], callers: &[CallerHash]) {
    let by_state = |state| records.iter().filter(|record| record.state_name() == state).count();
    let by_caller = |caller| records.iter().filter(|record| record.caller_hash() == caller).count();
    let mut expected = vec![(Count::Records, records.len()), (Count::Markers, 0)];
    expected.extend(StateName::ALL.map(|state| (Count::State(state), by_state(state))));
    expected.extend(callers.iter().map(|caller| (Count::Caller(*caller), by_caller(*caller))));
    expected.push((Count::Caller(CallerHash::from_bytes([0; 32])), 0));
    for (what, there_are) in expected {
        for at_most in [0, 1, 3, there_are as u64, u64::MAX] {
            let counted = store.count(what, at_most).await.expect("an answer");
            assert_eq!(counted.count, at_most.min(there_are as u64), "{what:?}, at most {at_most}");
        }
    }
}

/// Records are counted in all, by caller and by state, through every change of theirs, up to the limit.
pub async fn counts_follow_every_write_and_stop_at_the_limit(subject: Subject) {
    subject.turn(START).await;
    let store = &**subject.store();
    let command = |n: usize| {
        let scope = Scope::new(Identity::api_key(format!("caller {}", n % 3)), Operation::named("charge"));
        command_in(&scope, &format!("key {n}"), policy())
    };
    let callers = [0, 1, 2].map(|n| command(n).caller_hash);
    all_counts_are_right(store, &[], &callers).await;
    let mut records = Vec::new();
    for n in 0..28 {
        let state = StateName::ALL[n % 7];
        records.push(bring(store, state, &command(n), token(n as u64), START).await);
    }
    all_counts_are_right(store, &records, &callers).await;
    for (n, record) in records.iter_mut().enumerate() {
        if record.state_name() == StateName::Processing {
            let write = finish(record, paid(), START);
            swap(store, &command(n), &write).await;
            *record = write.next;
        }
    }
    all_counts_are_right(store, &records, &callers).await;
    for n in [27, 20] {
        let record = records.remove(n);
        store.remove(command(n).id, Expect::unchanged(&record)).await.expect("an answer");
    }
    // Time alone changes no count: a record is there until it is removed.
    subject.turn(START + 10_000 * HOUR).await;
    all_counts_are_right(store, &records, &callers).await;
}
