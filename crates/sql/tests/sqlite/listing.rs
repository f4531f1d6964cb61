//! Pages: their order, filters and limits.

use crate::scratch::{
    ManualClock, NOW, Scratch, caller, claim_at, claimed, command, finished, id, insert, is_done, stamp, swap,
};
use semel_core::id::CommandId;
use semel_core::machine;
use semel_core::record::StateName;
use semel_core::store::{Callers, Change, Cursor, Filter, Kind, Page, Store as _};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};

fn ids(page: &Page) -> Vec<CommandId> {
    page.items.iter().map(|item| item.id).collect()
}

async fn all(store: &Store, filter: &Filter, limit: usize) -> Vec<CommandId> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.page(filter, after.as_ref(), limit).await.expect("read");
        found.extend(ids(&page));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_filter_finds_its_records_with_every_index() {
    let scratch = Scratch::new("filters");
    let store = scratch.open();
    let mut records = Vec::new();
    for number in 0..30 {
        let record = claim_at(number, 1, NOW + number);
        assert!(is_done(&insert(&store, number, &record).await));
        let record = match number % 5 {
            0 => {
                let done = finished(&record, "x");
                assert!(is_done(&swap(&store, number, &record, &done).await));
                done
            }
            1 => {
                let lapsed = machine::lapse(&record, stamp(NOW + 100_000)).expect("its lease is dead").next;
                assert!(is_done(&swap(&store, number, &record, &lapsed).await));
                lapsed
            }
            _ => record,
        };
        records.push(record);
    }
    assert!(is_done(&store.write(id(99), Change::InsertMarker).await.expect("an answer")));
    let moment = |number| Some(Time::from_millis(NOW + number));
    let filters = [
        Filter::default(),
        Filter { state: Some(StateName::Unknown), ..Filter::default() },
        Filter { state: Some(StateName::Succeeded), ..Filter::default() },
        Filter { state: Some(StateName::Expired), ..Filter::default() },
        Filter { caller: Some(caller(1).into()), ..Filter::default() },
        Filter { caller: Some(caller(1).into()), state: Some(StateName::Unknown), ..Filter::default() },
        Filter { caller: Callers::beginning(&caller(1).to_hex()[..9]), ..Filter::default() },
        Filter { operation: Some("POST /refunds".to_owned()), ..Filter::default() },
        Filter { operation: Some("POST /refund".to_owned()), ..Filter::default() },
        Filter { key: Some(command(7).key_hash), ..Filter::default() },
        Filter { updated_from: moment(8), updated_before: moment(20), ..Filter::default() },
    ];
    for filter in filters {
        let expected: Vec<_> = (0..)
            .zip(&records)
            .filter(|(_, record)| filter.wants(record))
            .map(|(number, _)| id(number))
            .collect();
        for limit in [1, 4, 100] {
            assert_eq!(all(&store, &filter, limit).await, expected, "{filter:?}, {limit} a page");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn due_records_are_listed_longest_overdue_first() {
    let scratch = Scratch::new("due");
    let clock = ManualClock::at(NOW);
    let store =
        Store::open(scratch.file(), Options::default().clock(clock.clone())).expect("the store opens");
    // Claimed in another order than they become due; three at the same time.
    for (number, at) in (0..).zip([50, 10, 40, 10, 20, 10, 30]) {
        assert!(is_done(&insert(&store, number, &claim_at(number, 1, NOW + at)).await));
    }
    clock.set(NOW + 30_000 + 40);
    let expected = [1, 3, 5, 4, 6, 2].map(id);
    assert_eq!(ids(&store.due(None, 100).await.expect("read")), expected);
    for limit in 1..4 {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.due(after.as_ref(), limit).await.expect("read");
            assert!(page.items.len() <= limit);
            found.extend(ids(&page));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{limit} a page");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn markers_are_listed_apart_from_records() {
    let scratch = Scratch::new("markers");
    let store = scratch.open();
    for number in 0..5 {
        assert!(is_done(&store.write(id(number), Change::InsertMarker).await.expect("an answer")));
        assert!(is_done(&insert(&store, number + 10, &claimed(number + 10)).await));
    }
    let first = store.markers(None, 3).await.expect("read");
    assert_eq!(ids(&first), [0, 1, 2].map(id));
    let rest = store.markers(first.next.as_ref(), 3).await.expect("read");
    assert_eq!(ids(&rest), [3, 4].map(id));
    assert_eq!(rest.next, None);
    assert_eq!(all(&store, &Filter::default(), 100).await, [10, 11, 12, 13, 14].map(id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_large_outcomes_is_shortened_and_can_be_continued() {
    let scratch = Scratch::new("large-pages");
    let store = scratch.open();
    for number in 0..8 {
        let large = finished(&claimed(number), vec![0; 5 << 20]);
        assert!(is_done(&insert(&store, number, &large).await));
    }
    let first = store.page(&Filter::default(), None, 100).await.expect("read");
    assert_eq!(first.items.len(), 4, "16 MiB and the one that exceeds it");
    assert!(first.next.is_some());
    assert_eq!(all(&store, &Filter::default(), 100).await, [0, 1, 2, 3, 4, 5, 6, 7].map(id));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_cursor_is_refused() {
    let scratch = Scratch::new("cursor");
    let store = scratch.open();
    let forged = Cursor::from_bytes("made up");
    let kind = |page: Result<Page, semel_core::store::Error>| page.map_err(|error| error.kind());
    assert_eq!(kind(store.page(&Filter::default(), Some(&forged), 1).await), Err(Kind::Unfit));
    assert_eq!(kind(store.due(Some(&forged), 1).await), Err(Kind::Unfit));
    assert_eq!(kind(store.markers(Some(&forged), 1).await), Err(Kind::Unfit));
}
