//! What operators see: every record once, the oldest first, and exactly the matches of a filter.

use crate::crowd::at_once;
use crate::harness::Subject;
use crate::scene::{
    HOUR, START, bring, command, command_in, finish, first, insert, is_done, paid, policy, read, renew, swap,
    token,
};
use crate::walk;
use semel_core::classify::Ending;
use semel_core::id::CommandId;
use semel_core::machine::Unchanged;
use semel_core::outcome::Outcome;
use semel_core::record::{Record, StateName};
use semel_core::scope::{Identity, Operation, Scope};
use semel_core::store::{Callers, Change, Filter, OperationIds, Order, PAGE_BYTES_MAX, Store, Written};
use semel_core::time::Time;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// Every record is listed once, the oldest or the newest first if the store declares it, whatever the page size.
pub async fn every_record_is_shown_once_the_oldest_first(subject: Subject) {
    let store = &**subject.store();
    let mut expected = Vec::new();
    for n in 0..50_u32 {
        let now = START + Duration::from_secs(1) * n;
        subject.set_time(now).await;
        let command = command(u64::from(n));
        insert(store, &command, &first(&command, token(u64::from(n)), now)).await;
        expected.push(command.id);
    }
    // A change does not change a record's age.
    let changed = read(store, &command(3)).await;
    let write = finish(changed.record().expect("it stands"), paid(), START + HOUR);
    assert!(is_done(&store.write(command(3).id, Change::from(&write)).await.expect("an answer")));
    let is_ordered = store.capabilities().order == Order::OldestFirst;
    if !is_ordered {
        expected.sort_unstable();
    }
    for limit in [1, 7, 50, 1_000] {
        let mut shown: Vec<_> =
            walk::page(store, &Filter::default(), limit).await.iter().map(|item| item.id).collect();
        if !is_ordered {
            shown.sort_unstable();
        }
        assert_eq!(shown, expected, "in pages of {limit}");
    }
    if !is_ordered {
        return;
    }
    expected.reverse();
    let newest_first = Filter { newest_first: true, ..Filter::default() };
    for limit in [1, 7, 50, 1_000] {
        let shown: Vec<_> =
            walk::page(store, &newest_first, limit).await.iter().map(|item| item.id).collect();
        assert_eq!(shown, expected, "the newest first, in pages of {limit}");
    }
}

/// A page contains no more bytes of records than allowed, plus one record, however many records it may have; and every
/// record is still listed.
pub async fn a_page_is_bounded_in_bytes(subject: Subject) {
    const LARGE: usize = 6;
    const SIZE: usize = PAGE_BYTES_MAX / 4 * 3;
    let store = &**subject.store();
    if store.capabilities().entry_bytes_max < SIZE as u64 + 4_096 {
        return;
    }
    subject.set_time(START).await;
    let mut expected = Vec::new();
    for n in 0..LARGE as u64 {
        let (command, token) = (command(n), token(n));
        let record = first(&command, token, START);
        insert(store, &command, &record).await;
        swap(store, &command, &finish(&record, Ending::Succeeded(Outcome::value(vec![7; SIZE])), START))
            .await;
        expected.push(command.id);
    }
    let (mut shown, mut pages, mut after) = (Vec::new(), 0, None);
    loop {
        let page = store.page(&Filter::default(), after.as_ref(), 100).await.expect("an answer");
        assert!(page.items.len() <= 2, "{} entries of {SIZE} bytes in one page", page.items.len());
        shown.extend(page.items.iter().map(|item| item.id));
        pages += 1;
        assert!(pages < 100, "the pages never end");
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    shown.sort_unstable();
    expected.sort_unstable();
    assert_eq!(shown, expected, "every record once");
    let policy = policy();
    subject.set_time(START + policy.ttl).await;
    let due = store.due(None, 100).await.expect("an answer");
    assert!((1..=2).contains(&due.items.len()), "{} of them due in one page", due.items.len());
}

/// An empty store shows an empty page and no next one.
pub async fn an_empty_store_has_one_empty_page(subject: Subject) {
    subject.set_time(START).await;
    let store = &**subject.store();
    assert_eq!(walk::page(store, &Filter::default(), 10).await, []);
    assert_eq!(walk::due(store, 10).await, []);
    assert_eq!(walk::markers(store, 10).await, []);
}

/// Each part of a filter, and two together, list exactly the matching records.
pub async fn a_filter_shows_exactly_what_matches(subject: Subject) {
    let store = &**subject.store();
    let records = varied(&subject).await;
    let some = &records[17];
    let any = Filter::default;
    let mut filters: Vec<Filter> =
        StateName::ALL.into_iter().map(|state| Filter { state: Some(state), ..any() }).collect();
    let (first_half, second_half) = (START, START + 10 * HOUR);
    let id = some.operation_id().to_string();
    for digits in [4, 9, 36] {
        filters.push(Filter { ids: OperationIds::beginning(&id[..digits]), ..any() });
    }
    filters.push(Filter { ids: OperationIds::beginning(&id), newest_first: true, ..any() });
    filters.extend([
        any(),
        Filter { operation: Some(some.operation().to_string()), ..any() },
        Filter { operation: Some("of no record".to_owned()), ..any() },
        Filter { caller: Some(some.caller_hash().into()), ..any() },
        Filter { caller: Callers::beginning(&some.caller_hash().prefix()), ..any() },
        Filter { caller: Callers::beginning(&some.caller_hash().to_hex()[..17]), ..any() },
        Filter { caller: Callers::beginning("00000000"), ..any() },
        Filter { key: Some(some.key_hash()), ..any() },
        Filter { updated_from: Some(some.updated_at()), ..any() },
        Filter { updated_before: Some(some.updated_at()), ..any() },
        Filter { updated_from: Some(first_half), updated_before: Some(second_half), ..any() },
        Filter { updated_from: Some(second_half), updated_before: Some(first_half), ..any() },
        Filter { updated_from: Some(Time::from_millis(0)), updated_before: Some(Time::MAX), ..any() },
        Filter { state: Some(StateName::Succeeded), caller: Some(some.caller_hash().into()), ..any() },
        Filter { state: Some(some.state_name()), operation: Some(some.operation().to_string()), ..any() },
    ]);
    let is_ordered = store.capabilities().order == Order::OldestFirst;
    let in_order = |mut shown: Vec<Record>| {
        if !is_ordered {
            shown.sort_by_key(|record| *record.operation_id().as_bytes());
        }
        shown
    };
    for filter in filters {
        let matching = in_order(records.iter().filter(|record| filter.wants(record)).cloned().collect());
        for limit in [2, 100] {
            let items = walk::page(store, &filter, limit).await;
            let shown = in_order(items.iter().filter_map(|item| item.record().cloned()).collect());
            assert_eq!(shown, matching, "for {filter:?} in pages of {limit}");
        }
    }
}

/// Records in every state, of several operations and callers, an hour apart.
async fn varied(subject: &Subject) -> Vec<Record> {
    let mut records = Vec::new();
    for n in 0..42_u32 {
        let now = START + HOUR * n;
        subject.set_time(now).await;
        let caller = Identity::api_key(format!("caller {}", n % 3));
        let scope = Scope::new(caller, Operation::named(format!("operation {}", n % 4)));
        let command = command_in(&scope, &format!("key {}", n % 20), policy());
        let state = StateName::ALL[n as usize % 7];
        records.push(bring(&**subject.store(), state, &command, token(u64::from(n)), now).await);
    }
    records
}

/// A filter that matches a few among thousands finds them, however the store divides the work.
pub async fn a_filter_finds_the_few_among_thousands(subject: Subject) {
    const ALL: u64 = 2_500;
    subject.set_time(START).await;
    let rare = |n| n % 1_000 == 7;
    let insert_some = |writer: u64| {
        let store = Arc::clone(subject.store());
        async move {
            for n in (writer * ALL / 25)..((writer + 1) * ALL / 25) {
                let operation = Operation::named(if rare(n) { "rare" } else { "charge" });
                let scope = Scope::new(Identity::api_key("a caller"), operation);
                let command = command_in(&scope, &format!("key {n}"), policy());
                insert(&*store, &command, &first(&command, token(n), START)).await;
            }
        }
    };
    at_once((0..25).map(insert_some)).await;
    let filter = Filter { operation: Some("rare".to_owned()), ..Filter::default() };
    for limit in [1, 2, 100] {
        let shown = walk::page(&**subject.store(), &filter, limit).await;
        let all_match = shown.iter().all(|item| item.record().is_some_and(|record| filter.wants(record)));
        assert_eq!((shown.len(), all_match), (3, true), "in pages of {limit}");
    }
    assert_eq!(walk::page(&**subject.store(), &Filter::default(), 400).await.len() as u64, ALL);
}

/// While others write, insert and remove, every record that exists all the time is listed exactly once.
pub async fn unchanged_records_are_listed_once_during_writes(subject: Subject) {
    const STAY: u64 = 60;
    subject.set_time(START).await;
    let handles = subject.two_handles().await;
    for n in 0..STAY {
        insert(&*handles[0], &command(n), &first(&command(n), token(n), START)).await;
    }
    let mut tasks: Vec<Pin<Box<dyn Future<Output = ()> + Send>>> = Vec::new();
    for handle in &handles {
        tasks.push(Box::pin(read_throughout(Arc::clone(handle), STAY)));
        tasks.push(Box::pin(insert_and_remove(Arc::clone(handle), tasks.len() as u64)));
    }
    tasks.push(Box::pin(write_throughout(Arc::clone(&handles[1]), STAY)));
    at_once(tasks).await;
}

async fn read_throughout(store: Arc<dyn Store>, stay: u64) {
    for round in 0..12 {
        let mut shown: BTreeMap<CommandId, u32> = BTreeMap::new();
        for item in walk::page(&*store, &Filter::default(), 3 + round).await {
            *shown.entry(item.id).or_default() += 1;
        }
        for n in 0..stay {
            assert_eq!(shown.get(&command(n).id), Some(&1), "how often record {n} was shown");
        }
    }
}

/// Every remaining record is written repeatedly, so that it moves in every index that depends on writes.
async fn write_throughout(store: Arc<dyn Store>, stay: u64) {
    for round in 1..6_u32 {
        for n in 0..stay {
            let reading = read(&*store, &command(n)).await;
            let record = reading.record().expect("it stays");
            let now = START + HOUR * round;
            let write = if round == 5 { finish(record, paid(), now) } else { renew(record, now) };
            let written = store.write(command(n).id, Change::from(&write)).await.expect("an answer");
            assert!(is_done(&written), "there is no other writer: {written:?}");
        }
    }
}

async fn insert_and_remove(store: Arc<dyn Store>, who: u64) {
    for n in 0..60 {
        let command = command(1_000_000 * (who + 1) + n);
        let record = first(&command, token(n), START);
        assert!(matches!(
            store.write(command.id, Change::Insert(&record)).await.expect("an answer"),
            Written::Done { .. }
        ));
        if n % 3 != 0 {
            assert!(matches!(
                store.write(command.id, Change::Remove(Unchanged::of(&record))).await.expect("an answer"),
                Written::Done { .. }
            ));
        }
    }
}
