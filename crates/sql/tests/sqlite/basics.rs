//! Conditions, answers and times.

use crate::scratch::{
    ManualClock, NOW, Scratch, claim_at, claimed, finished, id, insert, is_done, renewed, swap,
};
use semel_core::id::OperationId;
use semel_core::machine::Unchanged;
use semel_core::record::{Entry, StateName, Token};
use semel_core::store::{
    Capabilities, Change, ClockSource, Counting, Kind, Order, Setting, Sharing, Store as _, Written,
};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};

#[tokio::test(flavor = "multi_thread")]
async fn written_records_are_read_after_reopening() {
    let scratch = Scratch::new("reopened");
    let (first, second) = (claimed(1), finished(&claimed(2), "paid"));
    {
        let store = scratch.open();
        assert!(is_done(&insert(&store, 1, &first).await));
        assert!(is_done(&insert(&store, 2, &claimed(2)).await));
        assert!(is_done(&swap(&store, 2, &claimed(2), &second).await));
    }
    let store = scratch.open();
    assert_eq!(store.get(id(1)).await.expect("read").record(), Some(&first));
    assert_eq!(store.get(id(2)).await.expect("read").record(), Some(&second));
    assert_eq!(store.get(id(3)).await.expect("read").entry, None);
    let (_, found) = store.find(OperationId::of(&id(2))).await.expect("read");
    assert_eq!(found.map(|item| (item.id, item.entry)), Some((id(2), Ok(Entry::Record(Box::new(second))))));
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_insert_returns_the_existing_record() {
    let scratch = Scratch::new("refused");
    let store = scratch.open();
    let (winner, loser) = (claim_at(1, 10, NOW), claim_at(1, 11, NOW));
    assert!(is_done(&insert(&store, 1, &winner).await));
    let Written::Refused(reading) = insert(&store, 1, &loser).await else { panic!("refused") };
    assert_eq!(reading.record(), Some(&winner));
    assert_eq!(store.get(id(1)).await.expect("read").record(), Some(&winner));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_swap_needs_matching_version_token_and_state() {
    let scratch = Scratch::new("swap");
    let store = scratch.open();
    let old = claimed(1);
    assert!(is_done(&insert(&store, 1, &old).await));
    let (version, token, state) = (old.version(), old.token(), old.state_name());
    let wrong = [
        Unchanged { version: version + 1, token, state },
        Unchanged { version, token: Token::from_random(99), state },
        Unchanged { version, token, state: StateName::Claimed },
    ];
    for expect in wrong {
        let swapped = store.write(id(1), Change::Replace(expect, &renewed(&old))).await.expect("an answer");
        assert!(matches!(swapped, Written::Refused(ref found) if found.record() == Some(&old)), "{expect:?}");
        let removed = store.write(id(1), Change::Remove(expect)).await.expect("an answer");
        assert!(matches!(removed, Written::Refused(ref found) if found.record() == Some(&old)), "{expect:?}");
    }
    assert!(is_done(&swap(&store, 1, &old, &renewed(&old)).await));
    assert!(!is_done(&swap(&store, 1, &old, &renewed(&old)).await), "the same again meets what it wrote");
    assert!(is_done(
        &store.write(id(1), Change::Remove(Unchanged::of(&renewed(&old)))).await.expect("an answer")
    ));
    assert_eq!(store.get(id(1)).await.expect("read").entry, None);
    let gone =
        store.write(id(1), Change::Replace(Unchanged::of(&old), &renewed(&old))).await.expect("an answer");
    assert!(matches!(gone, Written::Refused(ref found) if found.entry.is_none()), "a swap never inserts");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_marker_is_not_a_record_and_needs_its_own_removal() {
    let scratch = Scratch::new("marker");
    let store = scratch.open();
    assert!(is_done(&store.write(id(1), Change::InsertMarker).await.expect("an answer")));
    let Written::Refused(reading) = insert(&store, 1, &claimed(1)).await else { panic!("refused") };
    assert_eq!(reading.entry, Some(Ok(Entry::Moved)));
    assert!(!is_done(&swap(&store, 1, &claimed(1), &renewed(&claimed(1))).await));
    assert_eq!(store.find(OperationId::of(&id(1))).await.expect("read").1, None);

    assert!(is_done(&insert(&store, 2, &claimed(2)).await));
    assert!(!is_done(&store.write(id(2), Change::RemoveMarker).await.expect("an answer")));
    assert!(!is_done(&store.write(id(3), Change::RemoveMarker).await.expect("an answer")));
    assert!(is_done(&store.write(id(1), Change::RemoveMarker).await.expect("an answer")));
    assert_eq!(store.get(id(1)).await.expect("read").entry, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_many_claims_wins_and_the_rest_see_it() {
    let scratch = Scratch::new("race");
    let store = std::sync::Arc::new(scratch.open());
    for number in 0..20 {
        let tries: Vec<_> = (0..32)
            .map(|token| {
                let store = store.clone();
                tokio::spawn(async move { insert(&store, number, &claim_at(number, token, NOW)).await })
            })
            .collect();
        let (mut won, mut seen) = (Vec::new(), Vec::new());
        for (token, attempt) in (0..).zip(tries) {
            match attempt.await.expect("no panic") {
                Written::Done { .. } => won.push(Token::from_random(token)),
                Written::Refused(reading) => seen.push(reading.record().expect("a record").token()),
            }
        }
        assert_eq!(won.len(), 1);
        assert!(seen.iter().all(|token| *token == won[0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_carries_the_clocks_time() {
    let scratch = Scratch::new("time");
    let clock = ManualClock::at(5);
    let store =
        Store::open(scratch.file(), Options::default().clock(clock.clone())).expect("the store opens");
    assert_eq!(insert(&store, 1, &claimed(1)).await.now(), Time::from_millis(5));
    clock.set(6);
    assert_eq!(insert(&store, 1, &claimed(1)).await.now(), Time::from_millis(6));
    clock.set(7);
    assert_eq!(store.get(id(1)).await.expect("read").now, Time::from_millis(7));
    assert_eq!(store.due(None, 1).await.expect("read").now, Time::from_millis(7));
    assert_eq!(store.find(OperationId::of(&id(9))).await.expect("read").0, Time::from_millis(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_of_sixteen_mebibytes_is_read_back_unchanged() {
    let scratch = Scratch::new("large");
    let store = scratch.open();
    let body: Vec<u8> = (0..16_u32 << 20).map(|n| n.to_le_bytes()[1]).collect();
    let (small, large) = (claimed(1), finished(&claimed(1), body));
    assert!(is_done(&insert(&store, 1, &small).await));
    assert!(is_done(&swap(&store, 1, &small, &large).await));
    assert!(store.get(id(1)).await.expect("read").record() == Some(&large));
    assert!(is_done(&store.write(id(1), Change::Remove(Unchanged::of(&large))).await.expect("an answer")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_with_another_commands_operation_id_is_refused() {
    let scratch = Scratch::new("other-id");
    let store = scratch.open();
    let error = store.write(id(1), Change::Insert(&claimed(2))).await.expect_err("refused");
    assert_eq!(error.kind(), Kind::Unfit);
    assert_eq!(store.get(id(1)).await.expect("read").entry, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_is_replaced_only_if_it_has_the_expected_value() {
    let scratch = Scratch::new("settings");
    let store = scratch.open();
    let set = async |expect: Option<&'static str>, next: Option<&'static str>| {
        let bytes = |text: &'static str| text.as_bytes();
        store.set("secret", expect.map(bytes), next.map(bytes)).await.expect("an answer")
    };
    assert_eq!(set(Some("old"), Some("new")).await, Setting::Refused(None));
    assert_eq!(set(None, Some("")).await, Setting::Done);
    assert_eq!(set(None, Some("new")).await, Setting::Refused(Some("".into())), "empty is not absent");
    assert_eq!(set(Some(""), Some("new")).await, Setting::Done);
    assert_eq!(store.settings().await.expect("read"), [("secret".to_owned(), "new".into())]);
    assert_eq!(set(Some("new"), None).await, Setting::Done);
    assert_eq!(store.settings().await.expect("read"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_reports_its_capabilities() {
    let scratch = Scratch::new("capabilities");
    let store = scratch.open();
    let expected = Capabilities {
        durable: true,
        shared: Sharing::Machine,
        clock: ClockSource::EachMachine,
        counts: Counting::Exact,
        order: Order::OldestFirst,
        notifies: false,
        kept_in_memory: false,
        entry_bytes_max: 1 << 29,
    };
    assert_eq!(store.capabilities(), expected);
    assert_eq!(store.name(), format!("sqlite:{}", scratch.file().display()));
}
