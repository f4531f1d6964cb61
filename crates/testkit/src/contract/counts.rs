//! Counts are exact up to the requested limit and stop there, if the store declares exact counts.

use crate::harness::Subject;
use crate::scene::{HOUR, START, bring, command_in, finish, paid, policy, swap, token};
use semel_core::id::CallerHash;
use semel_core::machine::Unchanged;
use semel_core::record::{Record, StateName};
use semel_core::scope::{Identity, Operation, Scope};
use semel_core::store::{Change, Count, Counting, Kind, Store, Written};
use std::collections::BTreeMap;

async fn all_counts_are_right(store: &dyn Store, records: &[Record], callers: &[CallerHash]) {
    match store.capabilities().counts {
        Counting::Exact => {}
        // There is an answer, but no promise about it.
        Counting::Approximate => {
            store.census().await.expect("an answer");
            store.count(Count::Records, u64::MAX).await.expect("an answer");
            return;
        }
        Counting::None => {
            let refused = store.count(Count::Records, u64::MAX).await.expect_err("it does not count");
            assert_eq!(refused.kind(), Kind::Unfit, "an unsupported count is refused permanently");
            return;
        }
    }
    let by_state = |state| records.iter().filter(|record| record.state_name() == state).count();
    let by_caller = |caller| records.iter().filter(|record| record.caller_hash() == caller).count();
    let census = store.census().await.expect("an answer");
    for state in StateName::ALL {
        assert_eq!(census.in_state(state), by_state(state) as u64, "{state:?} in the census");
    }
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

/// Records are counted in total, by caller and by state, after every change, up to the limit.
pub async fn counts_follow_every_write_and_stop_at_the_limit(subject: Subject) {
    subject.set_time(START).await;
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
        assert!(matches!(
            store.write(command(n).id, Change::Remove(Unchanged::of(&record))).await.expect("an answer"),
            Written::Done { .. }
        ));
    }
    // Time alone changes no count: a record counts until it is removed.
    subject.set_time(START + 10_000 * HOUR).await;
    all_counts_are_right(store, &records, &callers).await;
}

/// Records are counted by operation and state, in a finite number of parts, for all states or for one. Markers are not
/// counted.
pub async fn tallies_add_up_to_every_record_by_operation_and_state(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    assert!(tallied(store, None, 10).await.is_empty());
    let mut records = Vec::new();
    for n in 0..42 {
        let operation = Operation::route("POST", format!("/charges/{}", n % 4));
        let scope = Scope::new(Identity::api_key("caller"), operation);
        let command = command_in(&scope, &format!("key {n}"), policy());
        records.push(bring(store, StateName::ALL[n % 7], &command, token(n as u64), START).await);
    }
    let scope = Scope::new(Identity::api_key("caller"), Operation::named("moved"));
    let marked = command_in(&scope, "a key that has moved", policy());
    assert!(matches!(
        store.write(marked.id, Change::InsertMarker).await.expect("an answer"),
        Written::Done { .. }
    ));
    for limit in [1, 5, 1_000] {
        for state in StateName::ALL.map(Some).into_iter().chain([None]) {
            let mut expected = BTreeMap::new();
            for record in
                records.iter().filter(|record| state.is_none_or(|state| state == record.state_name()))
            {
                *expected
                    .entry((record.operation().to_string(), record.state_name().as_str()))
                    .or_insert(0) += 1;
            }
            assert_eq!(tallied(store, state, limit).await, expected, "{state:?}, {limit} at a time");
        }
    }
}

async fn tallied(
    store: &dyn Store,
    state: Option<StateName>,
    limit: usize,
) -> BTreeMap<(String, &'static str), u64> {
    let (mut sums, mut after) = (BTreeMap::new(), None);
    for _ in 0..1_000 {
        let tally = store.tally(state, after.as_ref(), limit).await.expect("an answer");
        let part: u64 = tally.counts.iter().map(|tallied| tallied.count).sum();
        assert!(part <= limit as u64, "{part} counted, {limit} at most");
        for tallied in tally.counts {
            *sums.entry((tallied.operation, tallied.state.as_str())).or_insert(0) += tallied.count;
        }
        after = tally.next;
        if after.is_none() {
            return sums;
        }
    }
    panic!("the parts never end");
}
