//! What an operation's own rates promise, in addition to the engine's limits.

use super::*;

fn rates(new_per_caller: Option<Rate>, new_in_total: Option<Rate>) -> RateKeeper {
    let rates = Rates { new_per_caller, new_in_total, ..Rates::default() };
    RateKeeper::new(rates).expect("rates that make sense")
}

/// How many new keys are admitted under `rates`, one after the other, before one is refused.
fn minted_under(keeper: &QuotaKeeper, rates: &RateKeeper, who: CallerHash, now: Duration) -> u32 {
    let mut keys = 0;
    while let Admission::Granted(permit) = keeper.admit_under(Some(rates), who, None, now, &[]) {
        drop(permit);
        keys += 1;
        assert!(keys < 1_000_000, "nothing limits this");
    }
    keys
}

#[test]
fn an_operations_rate_limits_only_that_operation() {
    let keeper = keeper(&Quotas { new_per_caller: rate(10, 60), ..Quotas::default() });
    let (exports, payments) = (rates(rate(2, 60), None), rates(rate(5, 60), None));
    assert_eq!(minted_under(&keeper, &exports, caller(1), S(1)), 2);
    let refusal = refused(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[]));
    assert_eq!(refusal, Exceeded { is_of_operation: true, ..exceeded(Limit::NewPerCaller, S(30)) });
    assert!(refusal.to_string().contains("of this operation (new_per_caller)"), "{refusal}");
    assert_eq!(minted_under(&keeper, &payments, caller(1), S(1)), 5);
    assert_eq!(minted(&keeper, caller(1), None, S(1)), 3, "seven of the ten are used up");
    assert_eq!(minted_under(&keeper, &exports, caller(2), S(1)), 2, "another caller has its own");
}

#[test]
fn operation_rates_apply_without_any_other_limit() {
    let (keeper, exports) = (keeper(&Quotas::default()), rates(None, rate(3, 60)));
    assert_eq!(minted_under(&keeper, &exports, caller(1), S(1)), 3);
    assert_eq!(
        refused(keeper.admit_under(Some(&exports), caller(2), None, S(1), &[])).which,
        Limit::NewInTotal
    );
    assert_eq!(minted_under(&keeper, &exports, caller(2), S(21)), 1, "one more is available by then");
    let rates = Rates { new_per_address: rate(1, 60), ..Rates::default() };
    let exports = RateKeeper::new(rates).expect("rates that make sense");
    let ask = |who, from: &str| keeper.admit_under(Some(&exports), caller(who), address(from), S(1), &[]);
    drop(granted(ask(1, "192.0.2.1")));
    assert_eq!(refused(ask(2, "192.0.2.1")).which, Limit::NewPerAddress);
    drop(granted(ask(2, "192.0.2.2")));
}

#[test]
fn a_refusal_by_one_rate_charges_nothing_to_the_other() {
    // Refused by the operation a hundred times: the engine still has its ten minus the two admitted ones.
    let all = keeper(&Quotas { new_per_caller: rate(10, 3600), ..Quotas::default() });
    let exports = rates(rate(2, 3600), None);
    assert_eq!(minted_under(&all, &exports, caller(1), S(1)), 2);
    for _ in 0..100 {
        refused(all.admit_under(Some(&exports), caller(1), None, S(1), &[]));
    }
    assert_eq!(minted(&all, caller(1), None, S(1)), 8);
    // Refused by the engine a hundred times: the operation still has its ten minus two.
    let all = keeper(&Quotas { new_per_caller: rate(2, 10), ..Quotas::default() });
    let exports = rates(rate(10, 3600), None);
    assert_eq!(minted_under(&all, &exports, caller(1), S(1)), 2);
    for _ in 0..100 {
        let refusal = refused(all.admit_under(Some(&exports), caller(1), None, S(1), &[]));
        assert!(!refusal.is_of_operation, "{refusal:?}");
    }
    let unlimited = keeper(&Quotas::default());
    assert_eq!(minted_under(&unlimited, &exports, caller(1), S(1)), 8);
}

#[test]
fn the_longer_of_both_waits_is_reported() {
    for (own, further, waits) in [(10, 50, (S(50), true)), (50, 10, (S(50), false)), (50, 50, (S(50), false))]
    {
        let keeper = keeper(&Quotas { new_per_caller: rate(1, own), ..Quotas::default() });
        let exports = rates(rate(1, further), None);
        drop(granted(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[])));
        let refusal = refused(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[]));
        assert_eq!((refusal.retry_after, refusal.is_of_operation), waits);
    }
}

#[test]
fn a_refund_reaches_both_rates() {
    let keeper = keeper(&Quotas { new_per_caller: rate(1, 60), ..Quotas::default() });
    let exports = rates(rate(1, 60), None);
    for _ in 0..100 {
        let permit = granted(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[]));
        refused(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[]));
        permit.refund();
    }
    drop(granted(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[])));
    let unlimited = QuotaKeeper::new(&Quotas::default()).expect("no limits");
    refused(unlimited.admit_under(Some(&exports), caller(1), None, S(1), &[]));
    refused(keeper.admit(caller(1), None, S(1), &[]));
}

#[test]
fn a_caller_past_its_operations_rate_causes_no_count() {
    let keeper = keeper(&Quotas { records_per_caller: Some(100), ..Quotas::default() });
    let exports = rates(rate(1, 60), None);
    let question = count_request(keeper.admit_under(Some(&exports), caller(1), None, S(1), &[]));
    // The request for a count has charged nothing.
    let answers = [question.answered(3)];
    drop(granted(keeper.admit_under(Some(&exports), caller(1), None, S(1), &answers)));
    assert!(refused(keeper.admit_under(Some(&exports), caller(1), None, S(30), &[])).is_of_operation);
}

#[test]
fn clones_share_their_counts_within_the_allowed_memory() {
    let keeper = keeper(&Quotas::default());
    let limited = Rates { new_per_caller: rate(2, 60), ..Rates::default() };
    let exports = RateKeeper::tracking(limited, 8).expect("rates that make sense");
    assert_eq!(minted_under(&keeper, &exports.clone(), caller(0), S(1)), 2);
    assert_eq!(minted_under(&keeper, &exports, caller(0), S(1)), 0);
    for number in 1..1000 {
        if let Admission::Granted(permit) =
            keeper.admit_under(Some(&exports), caller(number), None, S(1), &[])
        {
            drop(permit);
        }
    }
    assert!(lock(&exports.ledger).tracked().iter().all(|count| *count <= 8));
    assert_eq!(minted_under(&keeper, &exports, caller(0), S(1)), 0, "it has freed no caller");
}

#[test]
fn invalid_rates_are_refused() {
    let never = Some(Rate { count: NonZeroU32::MIN, per: Duration::ZERO });
    let rates = Rates { new_in_total: never, ..Rates::default() };
    assert_eq!(rates.check(), Err(QuotasError::RateInNoTime("new_in_total")));
    assert_eq!(RateKeeper::new(rates).err(), Some(QuotasError::RateInNoTime("new_in_total")));
    assert_eq!(RateKeeper::tracking(Rates::default(), 0).err(), Some(QuotasError::NobodyTracked));
    assert!(Rates::default().are_off() && !rates.are_off());
}
