//! What may be decided while the clock is not fully trusted.

use super::*;
use crate::time::Trust;

/// The same moment with less trust.
fn doubted(millis: u64, trust: Trust) -> Stamp<'static> {
    let stamp = at(millis);
    Stamp { now: Now { trust, ..stamp.now }, ..stamp }
}

/// The moment `now`, if time has passed without a gap only since `steady_since`.
fn after_gap(millis: u64, steady_since: u64) -> Stamp<'static> {
    let stamp = at(millis);
    Stamp { now: Now { steady_since: Some(Time::from_millis(steady_since)), ..stamp.now }, ..stamp }
}

fn decided<'a>(record: &'a Record, payload: &'static Fingerprint, stamp: Stamp<'_>) -> Decision<'a> {
    let command = command_under(Policy::clone(&record.policy), payload);
    decide(Found::Record(record), &command, new_attempt(OTHER, Begin::Processing), stamp)
}

const REFUSED: Decision<'static> = Decision::Answer(Reply::ClockNotTrusted);
const HOUR: u64 = 3_600_000;
const YEAR: u64 = 365 * 24 * HOUR;
/// After the tombstone of every record of these tests.
const GONE: u64 = YEAR;
const QUIET: u64 = LEASE + 65_000;

#[test]
fn nothing_is_claimed_by_a_clock_that_is_not_trusted() {
    let never = doubted(5_000, Trust::Untrusted);
    let new = new_attempt(OTHER, Begin::Processing);
    assert_eq!(decide(Found::Nothing, &command(Class::External), new, never), REFUSED);
    assert_eq!(decided(&not_applied(Class::External), &SAME, never), REFUSED);
    assert_eq!(decided(&lapsed(Class::Downstream), &SAME, never), Decision::Answer(Reply::Unknown));
    for trust in [Trust::Starting, Trust::Settling] {
        drop(run(decide(Found::Nothing, &command(Class::External), new, doubted(5_000, trust))));
        drop(run(decided(&not_applied(Class::External), &SAME, doubted(5_000, trust))));
        drop(run(decided(&lapsed(Class::Downstream), &SAME, doubted(5_000, trust))));
    }
}

#[test]
fn an_unexpired_outcome_is_replayed_by_any_clock() {
    let replay = succeeded();
    for trust in [Trust::Untrusted, Trust::Starting, Trust::Settling] {
        let decision = decided(&replay, &SAME, doubted(5_000, trust));
        assert_eq!(decision, Decision::Answer(Reply::Replay(&paid())));
        assert_eq!(decided(&replay, &DIFFERENT, doubted(5_000, trust)), Decision::Answer(Reply::Mismatch));
    }
}

#[test]
fn nothing_is_expired_or_reused_before_the_clock_is_fully_trusted() {
    let (outcome, tombstone) = (succeeded(), expire(&succeeded(), at(25 * HOUR)).unwrap().next);
    for trust in [Trust::Untrusted, Trust::Starting, Trust::Settling] {
        let (expired, gone) = (doubted(25 * HOUR, trust), doubted(GONE, trust));
        for payload in [&SAME, &DIFFERENT] {
            assert_eq!(decided(&outcome, payload, expired), REFUSED, "perhaps expired");
            assert_eq!(decided(&outcome, payload, gone), REFUSED);
            let refused = Decision::Answer(Reply::Expired);
            assert_eq!(decided(&tombstone, payload, gone), refused, "a tombstone refuses");
        }
        assert_eq!(decided(&not_applied(Class::External), &DIFFERENT, gone), REFUSED);
        assert_eq!(expire(&outcome, expired), Err(Refusal::ClockNotTrusted));
        assert_eq!(purge(&tombstone, gone.now), Err(Refusal::ClockNotTrusted));
        for record in every_state() {
            assert!(!matches!(due(&record, gone.now), Due::Expire | Due::Purge), "{record:?}");
        }
    }
    assert_eq!(decided(&outcome, &SAME, at(25 * HOUR)), Decision::Answer(Reply::Expired));
    drop(run(decided(&tombstone, &DIFFERENT, at(GONE))));
}

#[test]
fn an_expired_failure_allows_the_next_attempt_while_time_settles() {
    let failed = not_applied(Class::External);
    let write = run(decided(&failed, &SAME, doubted(GONE, Trust::Settling)));
    assert_eq!((write.next.attempt, write.next.created_at), (2, failed.created_at), "not restarted");
    assert_eq!(run(decided(&failed, &SAME, at(GONE))).next.attempt, 1, "as new, when the clock is trusted");
}

#[test]
fn no_lease_or_quiet_period_ends_before_leases_are_judged() {
    for trust in [Trust::Untrusted, Trust::Starting] {
        let late = doubted(GONE, trust);
        for record in [processing(Class::External), claimed(Class::External)] {
            assert_eq!(decided(&record, &SAME, late), Decision::Answer(Reply::InProgress));
            assert_eq!(due(&record, late.now), Due::Nothing);
            assert_eq!(lapse(&record, late), Err(Refusal::ClockNotTrusted));
            assert!(!is_lease_dead(&record, late.now));
        }
        assert_eq!(release(&claimed(Class::External), late), Err(Refusal::ClockNotTrusted));
        let absent = Verdict::NotApplied { asked_at: late.now.at };
        let unknown = lapsed(Class::External);
        assert_eq!(reconcile(&unknown, absent.clone(), late), Err(Refusal::ClockNotTrusted));
        assert_eq!(resolve(&unknown, absent.clone(), late), Err(Refusal::ClockNotTrusted));
        assert_eq!(resolve(&unknown, Verdict::Failed(busy()), late), Err(Refusal::ClockNotTrusted));
        assert_eq!(resolve(&processing(Class::External), absent, late), Err(Refusal::ClockNotTrusted));
    }
    assert!(is_lease_dead(&processing(Class::External), doubted(GONE, Trust::Settling).now));
}

#[test]
fn nothing_is_dated_by_a_clock_that_is_not_trusted() {
    let never = doubted(5_000, Trust::Untrusted);
    let refused = Err(Refusal::ClockNotTrusted);
    assert_eq!(start(&claimed(Class::External), OWNER, never), refused);
    assert_eq!(renew(&processing(Class::External), OWNER, never.now), refused);
    assert_eq!(finish(&processing(Class::External), OWNER, Ending::Succeeded(paid()), never), refused);
    assert_eq!(finish(&processing(Class::External), OTHER, Ending::InDoubt, never), Err(Refusal::Superseded));
    let applied = Verdict::Applied(Some(paid()));
    assert_eq!(resolve(&in_doubt(Class::External), applied.clone(), never), refused);
    assert_eq!(reconcile(&in_doubt(Class::External), applied, never), refused);
}

#[test]
fn a_lease_from_before_a_gap_restarts_at_the_gap() {
    let record = processing(Class::External); // its lease ends at 31,000 by the old time
    let gap = HOUR;
    assert!(!is_lease_dead(&record, after_gap(gap + LEASE - 1, gap).now));
    assert!(is_lease_dead(&record, after_gap(gap + LEASE, gap).now));
    let renewed = renew(&record, OWNER, after_gap(gap + 10, gap).now).unwrap().next;
    assert!(!is_lease_dead(&renewed, after_gap(gap + LEASE, gap).now), "dated after the gap");
    assert!(is_lease_dead(&renewed, after_gap(gap + LEASE + 10, gap).now));
}

#[test]
fn a_quiet_period_from_before_a_gap_begins_at_the_gap() {
    let unknown = lapsed(Class::External);
    let gap = HOUR;
    let absent = |asked| Verdict::NotApplied { asked_at: Time::from_millis(asked) };
    let end = Time::from_millis(gap + QUIET);
    for asked in [gap, gap + QUIET] {
        let stamp = after_gap(asked, gap);
        assert_eq!(reconcile(&unknown, absent(asked), stamp), Err(Refusal::QuietUntil(end)));
        assert_eq!(resolve(&unknown, absent(asked), stamp), Err(Refusal::QuietUntil(end)));
    }
    let over = gap + QUIET + 1;
    drop(reconcile(&unknown, absent(over), after_gap(over, gap)).unwrap());
}

/// Claimed by a clock a year ahead, which has been corrected since.
fn from_the_future(class: Class, begin: Begin) -> Record {
    run(decide(Found::Nothing, &command(class), new_attempt(OWNER, begin), at(YEAR))).next
}

#[test]
fn a_lease_that_ends_later_than_any_can_is_dead() {
    let record = processing(Class::External); // claimed at 1,000
    assert!(!is_lease_dead(&record, at(1_000).now), "granted just now");
    assert!(is_lease_dead(&record, at(999).now), "granted in the future");
    let skewed = Now { skew: Duration::from_millis(50), ..at(950).now };
    assert!(!is_lease_dead(&record, skewed), "within the judge's own skew");
    let future = from_the_future(Class::External, Begin::Claimed);
    let released = release(&future, at(5_000)).unwrap().next;
    assert_eq!(released.state_name(), StateName::FailedNotReplayable);
    assert_eq!(due(&future, at(5_000).now), Due::Lapsed);
    drop(run(decided(&future, &SAME, at(5_000))));
}

#[test]
fn a_lease_from_the_future_is_dead_before_others_are_judged() {
    let confirmed = |millis: u64| {
        let now = doubted(millis, Trust::Starting).now;
        Now { is_ahead_wrong: true, steady_since: Some(Time::from_millis(5_000)), ..now }
    };
    let future = from_the_future(Class::External, Begin::Processing);
    assert!(!is_lease_dead(&future, confirmed(5_000 + LEASE - 1)), "a live owner renews it by then");
    let late = confirmed(5_000 + LEASE);
    assert!(is_lease_dead(&future, late));
    let stamp = Stamp { now: late, ..at(0) };
    assert!(matches!(decided(&future, &SAME, stamp), Decision::MarkUnknown(_)));
    assert!(!is_lease_dead(&processing(Class::External), confirmed(GONE)), "this one may be alive");
    for now in [Now { is_ahead_wrong: false, ..late }, Now { trust: Trust::Untrusted, ..late }] {
        assert!(!is_lease_dead(&future, now));
        assert_eq!(lapse(&future, Stamp { now, ..at(0) }), Err(Refusal::ClockNotTrusted));
    }
}

#[test]
fn a_date_within_the_uncertainty_is_not_in_the_future() {
    let record = processing(Class::Downstream); // claimed at 1,000
    let late_answer = Now { latest: Time::from_millis(1_000), ..at(10).now };
    assert!(!is_lease_dead(&record, late_answer) && !is_dated_ahead(&record, late_answer));
    let earlier = Now { latest: Time::from_millis(999), ..late_answer };
    assert!(is_lease_dead(&record, earlier) && is_dated_ahead(&record, earlier));
}

#[test]
fn an_owner_ahead_has_its_quiet_period_from_the_mark() {
    let future = from_the_future(Class::External, Begin::Processing);
    let Decision::MarkUnknown(marked) = decided(&future, &SAME, at(5_000)) else { panic!() };
    for unknown in [marked.next, lapse(&future, at(5_000)).unwrap().next] {
        let absent = |asked| Verdict::NotApplied { asked_at: Time::from_millis(asked) };
        let end = Refusal::QuietUntil(Time::from_millis(5_000 + QUIET));
        assert_eq!(resolve(&unknown, absent(5_000 + QUIET), at(5_000 + QUIET)), Err(end));
        drop(resolve(&unknown, absent(5_001 + QUIET), at(5_001 + QUIET)).unwrap());
    }
}

#[test]
fn an_unknown_dated_ahead_is_redated() {
    let future = from_the_future(Class::External, Begin::Processing);
    let unknown = lapse(&future, at(YEAR + LEASE)).unwrap().next;
    let absent = |asked| Verdict::NotApplied { asked_at: Time::from_millis(asked) };
    let late = 5_000 + 10 * QUIET;
    assert!(resolve(&unknown, absent(late), at(late)).is_err(), "not before the year has passed");
    assert_eq!(due(&unknown, at(5_000).now), Due::Redate);
    let redated = redate(&unknown, at(5_000)).unwrap().next;
    assert_eq!(due(&redated, at(5_000).now), Due::Probe);
    assert_eq!((redated.updated_at, redated.owner_wrote_at), (at(5_000).now.at, at(5_000).now.at));
    drop(resolve(&redated, absent(5_001 + QUIET), at(5_001 + QUIET)).unwrap());
    assert!(finish(&redated, OWNER, Ending::Succeeded(paid()), at(5_002)).is_ok(), "its owner overrides it");
    assert_eq!(redate(&redated, at(5_000)), Err(Refusal::WrongState), "once");
    assert_eq!(redate(&unknown, doubted(5_000, Trust::Starting)), Err(Refusal::ClockNotTrusted));
    assert_eq!(redate(&succeeded(), at(500)), Err(Refusal::WrongState));
    let marked = redate(&future, at(5_000)).unwrap().next;
    assert_eq!((marked.state_name(), marked.owner_wrote_at), (StateName::Unknown, at(5_000).now.at));
}

#[test]
fn a_repeat_window_that_begins_in_the_future_is_closed() {
    let future = from_the_future(Class::Downstream, Begin::Processing);
    let unknown = lapse(&future, at(YEAR + LEASE)).unwrap().next;
    drop(run(decided(&unknown, &SAME, at(YEAR + LEASE))));
    assert_eq!(decided(&unknown, &SAME, at(5_000)), Decision::Answer(Reply::Unknown));
    assert!(matches!(decided(&future, &SAME, at(5_000)), Decision::MarkUnknown(_)));
    assert!(
        to_be_asked_from(&unknown, at(5_000).now) <= Time::from_millis(5_000),
        "it needs a probe instead"
    );
}

#[test]
fn a_first_attempt_dated_ahead_is_never_repeated_after_a_write() {
    const NOW: u64 = 30 * 24 * HOUR;
    let future = from_the_future(Class::Downstream, Begin::Processing);
    let unknown = lapse(&future, at(YEAR + LEASE)).unwrap().next;
    let renewed = renew(&future, OWNER, at(NOW).now).unwrap().next;
    let left = lapse(&renewed, at(NOW + LEASE)).unwrap().next;
    for redated in [redate(&unknown, at(NOW)).unwrap().next, redate(&future, at(NOW)).unwrap().next, left] {
        for moment in [NOW + QUIET, NOW + HOUR, YEAR, YEAR + HOUR] {
            assert_eq!(decided(&redated, &SAME, at(moment)), Decision::Answer(Reply::Unknown), "at {moment}");
        }
    }
    let claimed = from_the_future(Class::Downstream, Begin::Claimed);
    let second = run(decided(&claimed, &SAME, at(NOW))).next;
    let doubt = finish(&second, OTHER, Ending::InDoubt, at(NOW + 1_000)).unwrap().next;
    assert_eq!(
        decided(&doubt, &SAME, at(YEAR + HOUR)),
        Decision::Answer(Reply::Unknown),
        "nor by the next attempt"
    );
}

#[test]
fn an_attempt_dated_by_a_replaced_time_is_not_repeated() {
    let doubt = lapsed(Class::Downstream); // claimed at 1,000
    let replaced = |at_ms: u64, up_to: Option<u64>, millis: u64| {
        let replaced_at = Some(Time::from_millis(at_ms));
        let now = Now { replaced_at, replaced_up_to: up_to.map(Time::from_millis), ..at(millis).now };
        decided(&doubt, &SAME, Stamp { now, ..at(millis) })
    };
    let unknown = Decision::Answer(Reply::Unknown);
    drop(run(replaced(1_000, None, 40_000)));
    assert_eq!(replaced(1_001, None, 40_000), unknown, "before the time was replaced");
    drop(run(replaced(500, Some(999), 40_000)));
    assert_eq!(replaced(500, Some(1_000), 40_000), unknown, "set to before its date");
}

#[test]
fn an_outcome_dated_by_a_replaced_time_is_kept_from_then() {
    let replaced = |millis| {
        let now = Now { replaced_at: Some(Time::from_millis(YEAR)), ..at(millis).now };
        Stamp { now, ..at(millis) }
    };
    let outcome = succeeded(); // seems a year old, may be a minute old
    let end = YEAR + 24 * HOUR;
    for moment in [YEAR, end - 1] {
        assert_eq!(decided(&outcome, &SAME, replaced(moment)), Decision::Answer(Reply::Replay(&paid())));
        assert_eq!(due(&outcome, replaced(moment).now), Due::Nothing);
        assert_eq!(expire(&outcome, replaced(moment)), Err(Refusal::NotBefore(Time::from_millis(end))));
        assert!(purge(&outcome, replaced(moment).now).is_err());
    }
    assert_eq!(decided(&outcome, &SAME, replaced(end)), Decision::Answer(Reply::Expired));
    let tombstone = expire(&outcome, replaced(end)).unwrap().next;
    assert_eq!(tombstone.gone_at(), Some(Time::from_millis(end + 30 * 24 * HOUR)));
    let later =
        finish(&processing(Class::External), OWNER, Ending::Succeeded(paid()), replaced(YEAR)).unwrap();
    assert_eq!(expires_at(&later.next, replaced(YEAR).now), later.next.expires_at(), "dated since");
}

/// A stamp of a time that replaced another one at [`YEAR`].
fn since_replacement(millis: u64) -> Stamp<'static> {
    Stamp { now: Now { replaced_at: Some(Time::from_millis(YEAR)), ..at(millis).now }, ..at(millis) }
}

#[test]
fn a_tombstone_of_a_replaced_time_is_kept_from_then() {
    let swept = succeeded().expires_at().unwrap().as_millis();
    let tombstone = expire(&succeeded(), at(swept)).unwrap().next; // its end seems eleven months ago
    let end = YEAR + 30 * 24 * HOUR;
    assert_eq!(gone_at(&tombstone, since_replacement(YEAR).now), Some(Time::from_millis(end)));
    for moment in [YEAR, end - 1] {
        let refused = Decision::Answer(Reply::Expired);
        assert_eq!(decided(&tombstone, &SAME, since_replacement(moment)), refused, "at {moment}");
        assert!(purge(&tombstone, since_replacement(moment).now).is_err());
    }
    assert!(purge(&tombstone, since_replacement(end).now).is_ok());
    drop(run(decided(&tombstone, &SAME, since_replacement(end))));
    let dated_since = expire(&succeeded(), since_replacement(YEAR + 24 * HOUR)).unwrap().next;
    assert_eq!(gone_at(&dated_since, since_replacement(YEAR).now), dated_since.gone_at());
}

#[test]
fn a_tombstone_is_extended_once_and_never_shortened() {
    let swept = succeeded().expires_at().unwrap().as_millis();
    let tombstone = expire(&succeeded(), at(swept)).unwrap().next;
    let now = since_replacement(YEAR + 5);
    assert_eq!(due(&tombstone, now.now), Due::Extend);
    let until = Time::from_millis(YEAR + 30 * 24 * HOUR);
    let extended = extend(&tombstone, now).unwrap().next;
    assert_eq!((&extended.state, extended.due_at()), (&State::Expired { until }, Some(until)));
    assert_eq!((due(&extended, now.now), extend(&extended, now)), (Due::Nothing, Err(Refusal::WrongState)));
    assert_eq!(due(&extended, since_replacement(until.as_millis()).now), Due::Purge);
    for trust in [Trust::Untrusted, Trust::Starting] {
        let doubted = Stamp { now: Now { trust, ..now.now }, ..now };
        assert_eq!(extend(&tombstone, doubted), Err(Refusal::ClockNotTrusted));
        assert_eq!(due(&tombstone, doubted.now), Due::Nothing);
    }
    // By a time that was set back, its end is far ahead already.
    let back = Stamp { now: Now { replaced_at: Some(Time::from_millis(1)), ..at(5).now }, ..at(5) };
    assert_eq!(
        (due(&tombstone, back.now), extend(&tombstone, back)),
        (Due::Nothing, Err(Refusal::WrongState))
    );
    assert_eq!(extend(&tombstone, at(YEAR)), Err(Refusal::WrongState), "the time was not replaced");
    for record in every_state().into_iter().filter(|record| record.state_name() != StateName::Expired) {
        assert_eq!(extend(&record, now), Err(Refusal::WrongState), "{record:?}");
    }
}

#[test]
fn an_erased_outcome_of_a_replaced_time_binds_its_key_as_long_as_before() {
    // Erased an hour after it was stored: a day and 30 days were left, but for that hour.
    let left = succeeded().gone_at().unwrap().as_millis() - HOUR;
    let erased = erase(&succeeded(), Erasure::Record, at(HOUR)).unwrap().next;
    let end = Time::from_millis(YEAR + left);
    assert_eq!(gone_at(&erased, since_replacement(YEAR + 5).now), Some(end));
    assert_eq!(extend(&erased, since_replacement(YEAR + 5)).unwrap().next.gone_at(), Some(end));
    // Erased after the replacement, it has a date of the new time, and has to keep its end.
    for erasure in [Erasure::Response, Erasure::Record] {
        let now = since_replacement(YEAR + 5);
        let late = erase(&succeeded(), erasure, now).unwrap().next;
        assert_eq!(gone_at(&late, now.now), gone_at(&succeeded(), now.now), "{erasure:?}");
        assert_eq!(late.expires_at().is_some(), erasure == Erasure::Response);
    }
}

#[test]
fn the_larger_skew_counts_for_leases_quiet_periods_and_repeats() {
    let skewed = |millis| Stamp { now: Now { skew: Duration::from_secs(5), ..at(millis).now }, ..at(millis) };
    let record = processing(Class::External);
    assert!(!is_lease_dead(&record, skewed(1_000 + LEASE + 4_999).now));
    assert!(is_lease_dead(&record, skewed(1_000 + LEASE + 5_000).now));
    let end = Time::from_millis(1_000 + QUIET + 5_000);
    assert_eq!(denial_refused_until(&record, skewed(0).now), Some(end));
    let downstream = lapsed(Class::Downstream);
    let window = 1_000 + 24 * HOUR - 65_000;
    drop(run(decided(&downstream, &SAME, skewed(window - 5_001))));
    assert_eq!(decided(&downstream, &SAME, skewed(window - 5_000)), Decision::Answer(Reply::Unknown));
}
