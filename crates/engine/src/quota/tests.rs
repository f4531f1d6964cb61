//! What the limits promise together.

mod rates;

use super::*;
use bytes::Bytes;
use semel_core::id::{CommandId, OperationId};

use semel_core::record::Record;
use semel_core::store::{
    Capabilities, Change, Counted, Cursor, Filter, Hazard, Item, Kind, Page, Pending, Reading, Setting,
    Written,
};
use semel_core::time::Time;
use std::collections::VecDeque;
use std::num::NonZeroU32;

const S: fn(u64) -> Duration = Duration::from_secs;

fn caller(number: u32) -> CallerHash {
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    CallerHash::from_bytes(bytes)
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse().map(Some).expect("an address")
}

fn rate(count: u32, per: u64) -> Option<Rate> {
    NonZeroU32::new(count).map(|count| Rate { count, per: S(per) })
}

fn keeper(quotas: &Quotas) -> QuotaKeeper {
    QuotaKeeper::new(quotas).expect("limits that make sense")
}

#[track_caller]
fn granted(admission: Admission) -> Permit {
    match admission {
        Admission::Granted(permit) => permit,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(admission: Admission) -> Exceeded {
    match admission {
        Admission::Refused(exceeded) => exceeded,
        other => panic!("{other:?}"),
    }
}

fn exceeded(which: Limit, retry_after: Duration) -> Exceeded {
    Exceeded { which, retry_after, is_of_operation: false }
}

#[track_caller]
fn count_request(admission: Admission) -> Question {
    match admission {
        Admission::Ask(question) => question,
        other => panic!("{other:?}"),
    }
}

/// How many new keys are admitted, one after the other, before one is refused.
fn minted(keeper: &QuotaKeeper, who: CallerHash, from: Option<IpAddr>, now: Duration) -> u32 {
    let mut keys = 0;
    while let Admission::Granted(permit) = keeper.admit(who, from, now, &[]) {
        drop(permit);
        keys += 1;
        assert!(keys < 1_000_000, "nothing limits this");
    }
    keys
}

#[test]
fn invalid_limits_are_refused() {
    let quotas = Quotas { records_in_total: Some(0), ..Quotas::default() };
    assert_eq!(QuotaKeeper::new(&quotas).err(), Some(QuotasError::NothingAllowed("records_in_total")));
}

#[test]
fn without_limits_everything_is_let_in() {
    let keeper = keeper(&Quotas::default());
    for _ in 0..10_000 {
        drop(granted(keeper.admit(caller(1), address("192.0.2.1"), S(1), &[])));
    }
}

#[test]
fn each_caller_has_a_rate_of_its_own() {
    let keeper = keeper(&Quotas { new_per_caller: rate(5, 60), ..Quotas::default() });
    assert_eq!(minted(&keeper, caller(1), None, S(100)), 5);
    let refusal = refused(keeper.admit(caller(1), None, S(100), &[]));
    assert_eq!(refusal, exceeded(Limit::NewPerCaller, S(12)));
    assert_eq!(minted(&keeper, caller(2), None, S(100)), 5);
    assert_eq!(minted(&keeper, caller(1), None, S(112)), 1, "the reported wait is exact");
}

#[test]
fn one_address_has_one_rate_for_all_its_callers() {
    let keeper = keeper(&Quotas { new_per_address: rate(5, 60), ..Quotas::default() });
    for number in 0..5 {
        drop(granted(keeper.admit(caller(number), address("192.0.2.1"), S(1), &[])));
    }
    let refusal = refused(keeper.admit(caller(9), address("192.0.2.1"), S(1), &[]));
    assert_eq!(refusal.which, Limit::NewPerAddress);
    assert_eq!(minted(&keeper, caller(9), address("192.0.2.2"), S(1)), 5);
}

#[test]
fn an_ipv6_slash_64_and_a_mapped_ipv4_are_one_address() {
    let keeper = keeper(&Quotas { new_per_address: rate(1, 60), ..Quotas::default() });
    drop(granted(keeper.admit(caller(1), address("2001:db8:1:2::1"), S(1), &[])));
    refused(keeper.admit(caller(1), address("2001:db8:1:2:ffff::9"), S(1), &[]));
    drop(granted(keeper.admit(caller(1), address("2001:db8:1:3::1"), S(1), &[])));
    drop(granted(keeper.admit(caller(1), address("192.0.2.1"), S(1), &[])));
    refused(keeper.admit(caller(1), address("::ffff:192.0.2.1"), S(1), &[]));
    drop(granted(keeper.admit(caller(1), address("::ffff:192.0.2.2"), S(1), &[])));
}

#[test]
fn a_command_without_a_network_address_has_no_address_limit() {
    let quotas = Quotas { new_per_address: rate(1, 60), records_per_address: Some(1), ..Quotas::default() };
    let keeper = keeper(&quotas);
    for _ in 0..100 {
        drop(granted(keeper.admit(caller(1), None, S(1), &[])));
    }
}

#[test]
fn the_total_applies_to_every_caller_and_address() {
    let keeper = keeper(&Quotas { new_in_total: rate(5, 60), ..Quotas::default() });
    for number in 0..5 {
        drop(granted(keeper.admit(caller(number), address(&format!("192.0.2.{number}")), S(1), &[])));
    }
    assert_eq!(refused(keeper.admit(caller(9), None, S(1), &[])).which, Limit::NewInTotal);
}

#[test]
fn a_refusal_on_one_level_charges_no_other() {
    let quotas = Quotas {
        new_per_caller: rate(3, 60),
        new_per_address: rate(3, 60),
        new_in_total: rate(1, 60),
        records_per_address: Some(3),
        records_per_caller: Some(3),
        ..Quotas::default()
    };
    let keeper = keeper(&quotas);
    let from = address("192.0.2.1");
    let count = count_request(keeper.admit(caller(1), from, S(1), &[])).answered(0);
    drop(granted(keeper.admit(caller(1), from, S(1), &[count])));
    for _ in 0..100 {
        assert_eq!(refused(keeper.admit(caller(1), from, S(1), &[])).which, Limit::NewInTotal);
    }
    for now in [61, 121] {
        let question = keeper.admit(caller(1), from, S(now), &[]);
        let admission = match question {
            Admission::Ask(question) => keeper.admit(caller(1), from, S(now), &[question.answered(1)]),
            other => other,
        };
        drop(granted(admission));
    }
}

#[test]
fn the_limit_with_the_longest_wait_is_reported() {
    let quotas = Quotas { new_per_caller: rate(1, 10), new_in_total: rate(1, 50), ..Quotas::default() };
    let keeper = keeper(&quotas);
    drop(granted(keeper.admit(caller(1), None, S(1), &[])));
    let refusal = refused(keeper.admit(caller(1), None, S(1), &[]));
    assert_eq!(refusal, exceeded(Limit::NewInTotal, S(50)));
}

#[test]
fn a_permit_stays_charged_unless_it_is_refunded() {
    let quotas = Quotas {
        new_per_caller: rate(1, 60),
        new_per_address: rate(1, 60),
        new_in_total: rate(1, 60),
        records_per_address: Some(1),
        ..Quotas::default()
    };
    let keeper = keeper(&quotas);
    let from = address("192.0.2.1");
    for _ in 0..100 {
        let permit = granted(keeper.admit(caller(1), from, S(1), &[]));
        refused(keeper.admit(caller(1), from, S(1), &[]));
        permit.refund();
    }
    drop(granted(keeper.admit(caller(1), from, S(1), &[])));
    refused(keeper.admit(caller(1), from, S(1), &[]));
}

#[test]
fn keys_of_an_address_count_for_the_whole_window() {
    let quotas = Quotas { records_per_address: Some(3), address_window: S(160), ..Quotas::default() };
    let keeper = keeper(&quotas);
    let from = address("192.0.2.1");
    assert_eq!(minted(&keeper, caller(1), from, S(15)), 3);
    let refusal = refused(keeper.admit(caller(2), from, S(100), &[]));
    assert_eq!(refusal, exceeded(Limit::RecordsPerAddress, S(80)));
    refused(keeper.admit(caller(2), from, S(179), &[]));
    assert_eq!(minted(&keeper, caller(2), from, S(180)), 3);
}

#[test]
fn invented_callers_free_no_caller_address_or_total() {
    let quotas = Quotas {
        new_per_caller: rate(5, 3_600),
        new_per_address: rate(500, 3_600),
        new_in_total: rate(600, 3_600),
        tracked_max: 8,
        ..Quotas::default()
    };
    let keeper = keeper(&quotas);
    let (mine, other) = (address("192.0.2.1"), address("192.0.2.2"));
    assert_eq!(minted(&keeper, caller(0), mine, S(1)), 5);
    let made_up: u32 = (1..10_000).map(|number| minted(&keeper, caller(number), mine, S(1))).sum();
    assert_eq!(made_up, 8 * 5 - 5, "as many as the table has room for, and then none");
    for number in 0..10_000 {
        refused(keeper.admit(caller(number), mine, S(1), &[]));
    }
    assert_eq!(minted(&keeper, caller(77_777), other, S(1)), 0, "newcomers pay while all are used up …");
    assert_eq!(minted(&keeper, caller(77_777), other, S(1 + 720)), 1, "… and recover with the rest");
}

#[test]
fn a_flood_of_callers_leaves_newcomers_most_of_their_limit() {
    let keeper = keeper(&Quotas { new_per_caller: rate(100, 3_600), tracked_max: 8, ..Quotas::default() });
    assert_eq!(minted(&keeper, caller(0), None, S(1)), 100);
    for number in 1..40 {
        drop(granted(keeper.admit(caller(number), None, S(1), &[])));
    }
    refused(keeper.admit(caller(0), None, S(1), &[]));
    let left = minted(&keeper, caller(99_999), None, S(1));
    assert!((90..100).contains(&left), "{left}");
}

#[test]
fn a_flood_of_addresses_frees_none_at_its_cap() {
    let quotas = Quotas { records_per_address: Some(50), tracked_max: 8, ..Quotas::default() };
    let keeper = keeper(&quotas);
    let busy = address("192.0.2.1");
    assert_eq!(minted(&keeper, caller(0), busy, S(1)), 50);
    for number in 0..200 {
        drop(keeper.admit(caller(1), address(&format!("2001:db8:0:{number:x}::1")), S(1), &[]));
    }
    assert_eq!(minted(&keeper, caller(0), busy, S(1)), 0);
    assert!(minted(&keeper, caller(0), address("198.51.100.1"), S(1)) < 50);
}

#[test]
fn no_flood_takes_more_memory_than_allowed() {
    let quotas = Quotas {
        new_per_caller: rate(5, 60),
        new_per_address: rate(5, 60),
        records_per_address: Some(5),
        records_per_caller: Some(5),
        tracked_max: 16,
        ..Quotas::default()
    };
    let keeper = keeper(&quotas);
    for number in 0..1_000_u32 {
        let from = Some(IpAddr::from(number.to_be_bytes()));
        let now = S(u64::from(number));
        if let Admission::Ask(question) = keeper.admit(caller(number), from, now, &[]) {
            let admission = keeper.admit(caller(number), from, now, &[question.answered(0)]);
            assert!(!matches!(admission, Admission::Ask(_)), "one answer is enough");
        }
    }
    let ledger = keeper.ledger.as_ref().expect("something is limited");
    assert_eq!(lock(ledger).tracked(), [16; 4]);
}

#[test]
fn the_store_counts_first_and_then_only_after_a_while() {
    let keeper = keeper(&Quotas { records_per_caller: Some(100), ..Quotas::default() });
    let question = count_request(keeper.admit(caller(1), None, S(1), &[]));
    assert_eq!((question.what(), question.at_most()), (Count::Caller(caller(1)), 100));
    drop(granted(keeper.admit(caller(1), None, S(1), &[question.answered(97)])));
    drop(granted(keeper.admit(caller(1), None, S(1), &[])));
    drop(granted(keeper.admit(caller(1), None, S(1), &[])));
    let refusal = refused(keeper.admit(caller(1), None, S(1), &[]));
    assert_eq!(refusal.which, Limit::RecordsPerCaller);
    assert!(refusal.retry_after >= S(1));
    let question = count_request(keeper.admit(caller(1), None, S(2), &[]));
    drop(granted(keeper.admit(caller(1), None, S(2), &[question.answered(99)])));
    refused(keeper.admit(caller(1), None, S(2), &[]));
}

#[test]
fn a_caller_past_its_rate_does_not_make_the_store_count() {
    let quotas = Quotas {
        new_per_caller: rate(1, 60),
        records_per_caller: Some(9),
        records_in_total: Some(9),
        ..Quotas::default()
    };
    let keeper = keeper(&quotas);
    let caller_count = count_request(keeper.admit(caller(1), None, S(1), &[])).answered(0);
    let all = count_request(keeper.admit(caller(1), None, S(1), &[caller_count])).answered(0);
    drop(granted(keeper.admit(caller(1), None, S(1), &[caller_count, all])));
    refused(keeper.admit(caller(1), None, S(40), &[]));
}

#[test]
fn a_count_is_used_even_for_a_caller_forgotten_meanwhile() {
    let keeper = keeper(&Quotas { records_per_caller: Some(5), tracked_max: 1, ..Quotas::default() });
    let question = count_request(keeper.admit(caller(1), None, S(1), &[]));
    let other = count_request(keeper.admit(caller(2), None, S(1), &[]));
    refused(keeper.admit(caller(1), None, S(1), &[question.answered(5)]));
    drop(granted(keeper.admit(caller(2), None, S(1), &[other.answered(4)])));
}

/// A store whose counts alone are real.
struct Counts(Mutex<VecDeque<Result<u64, Kind>>>);

impl Counts {
    fn of(counts: impl IntoIterator<Item = Result<u64, Kind>>) -> Self {
        Self(Mutex::new(counts.into_iter().collect()))
    }

    fn left(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

fn closed<'a, T>() -> Pending<'a, T> {
    Box::pin(async { Err(store::Error::new(Kind::Closed, "only counts are requested here")) })
}

impl Store for Counts {
    fn name(&self) -> String {
        "counts".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        crate::memory::Store::new().capabilities()
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        closed()
    }

    fn write<'a>(&'a self, _: CommandId, _: Change<&'a Record>) -> Pending<'a, Written> {
        closed()
    }

    fn get(&self, _: CommandId) -> Pending<'_, Reading> {
        closed()
    }

    fn find(&self, _: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        closed()
    }

    fn page<'a>(&'a self, _: &'a Filter, _: Option<&'a Cursor>, _: usize) -> Pending<'a, Page> {
        closed()
    }

    fn due<'a>(&'a self, _: Option<&'a Cursor>, _: usize) -> Pending<'a, Page> {
        closed()
    }

    fn markers<'a>(&'a self, _: Option<&'a Cursor>, _: usize) -> Pending<'a, Page> {
        closed()
    }

    fn count(&self, _: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            let next = self.0.lock().expect("no panic").pop_front().expect("one count too many");
            let count = next.map_err(|kind| store::Error::new(kind, "counting"))?;
            Ok(Counted { now: Time::from_millis(0), count: count.min(at_most) })
        })
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        closed()
    }

    fn set<'a>(&'a self, _: &'a str, _: Option<&'a [u8]>, _: Option<&'a [u8]>) -> Pending<'a, Setting> {
        closed()
    }
}

#[tokio::test]
async fn caller_and_total_are_counted_once_and_then_remembered() {
    let quotas = Quotas { records_per_caller: Some(9), records_in_total: Some(50), ..Quotas::default() };
    let (keeper, store) = (keeper(&quotas), Counts::of([Ok(7), Ok(30)]));
    for _ in 0..2 {
        drop(keeper.admit_counting(&store, caller(1), None, S(1)).await.expect("there is room"));
    }
    let denied = keeper.admit_counting(&store, caller(1), None, S(1)).await.expect_err("7 + 2 = 9");
    assert!(matches!(denied, Denied::Exceeded(Exceeded { which: Limit::RecordsPerCaller, .. })));
    assert_eq!(store.left(), 0);
}

#[tokio::test]
async fn a_store_that_cannot_count_admits_nobody() {
    let keeper = keeper(&Quotas { records_in_total: Some(50), ..Quotas::default() });
    let store = Counts::of([Err(Kind::Unavailable), Err(Kind::Unavailable), Ok(1)]);
    for _ in 0..2 {
        let denied = keeper.admit_counting(&store, caller(1), None, S(1)).await.expect_err("not counted");
        assert!(matches!(denied, Denied::Store(error) if error.kind() == Kind::Unavailable));
    }
    drop(keeper.admit_counting(&store, caller(1), None, S(1)).await.expect("counted at last"));
}

#[tokio::test]
async fn a_failed_recount_is_reported_despite_an_older_count() {
    let keeper = keeper(&Quotas { records_in_total: Some(2), ..Quotas::default() });
    let store = Counts::of([Ok(1), Err(Kind::Unavailable), Err(Kind::Unavailable)]);
    keeper.admit_counting(&store, caller(1), None, S(1)).await.expect("counted").refund();
    for _ in 0..2 {
        let denied = keeper.admit_counting(&store, caller(1), None, S(11)).await.expect_err("not counted");
        assert!(matches!(denied, Denied::Store(_)));
    }
}

#[tokio::test]
async fn requests_during_a_count_use_its_answer() {
    let keeper = Arc::new(keeper(&Quotas { records_in_total: Some(50), ..Quotas::default() }));
    let store = Arc::new(Counts::of([Ok(1)]));
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (keeper, store) = (Arc::clone(&keeper), Arc::clone(&store));
            let ask = async move { keeper.admit_counting(&*store, caller(number), None, S(1)).await.is_ok() };
            tokio::spawn(ask)
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("no extra count"));
    }
}

#[tokio::test]
async fn a_dropped_count_does_not_block_the_next() {
    let keeper = keeper(&Quotas { records_per_caller: Some(2), ..Quotas::default() });
    let store = Counts::of([Ok(1), Ok(1)]);
    keeper.admit_counting(&store, caller(1), None, S(1)).await.expect("counted").refund();
    {
        let mut dropped = std::pin::pin!(keeper.admit_counting(&store, caller(1), None, S(2)));
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(dropped.as_mut().poll(cx))).await;
        assert!(polled.is_pending());
    }
    drop(keeper.admit_counting(&store, caller(1), None, S(2)).await.expect("counted again"));
    assert_eq!(store.left(), 0);
}
