//! What an operator may do with a record, and when: the answers agree with the transitions.

use super::*;
use crate::time::Trust;

const QUIET: u64 = LEASE + 65_000;
const HOUR: u64 = 3_600_000;
const YEAR: u64 = 365 * 24 * HOUR;

/// Moments before, at and after every deadline of these records, with every level of trust, with and without a gap in
/// time.
fn moments() -> Vec<Now> {
    let ends = [0, 1000 + LEASE, 1000 + QUIET, 2000 + QUIET, HOUR + LEASE, HOUR + QUIET, YEAR, YEAR + QUIET];
    let moments = ends.into_iter().flat_map(|end: u64| [end.saturating_sub(1), end, end + 1]);
    let mut all = Vec::new();
    for moment in moments {
        let now = at(moment).now;
        for trust in [Trust::Untrusted, Trust::Starting, Trust::Settling, Trust::Trusted] {
            for steady_since in [None, Some(Time::from_millis(HOUR))] {
                all.push(Now { trust, steady_since, ..now });
                all.push(Now { trust, steady_since, skew: Duration::from_secs(5), ..now });
            }
        }
    }
    all
}

fn records() -> Vec<Record> {
    let mut all = every_state();
    let inherited = |mut record: Record| {
        record.earlier_doubt = true;
        record
    };
    all.extend([claimed(Class::Downstream), in_doubt(Class::Downstream)].map(inherited));
    // Dated by a clock a year ahead.
    for begin in [Begin::Claimed, Begin::Processing] {
        let claim = decide(Found::Nothing, &command(Class::External), new_attempt(OWNER, begin), at(YEAR));
        all.push(run(claim).next);
    }
    all
}

fn absent(now: Now) -> Verdict {
    Verdict::NotApplied { asked_at: now.at }
}

#[test]
fn the_allowed_actions_are_those_that_succeed() {
    for record in records() {
        for now in moments() {
            let stamp = Stamp::new(now, "operator", "looked");
            let resolved = resolve(&record, Verdict::Applied(None), stamp).map(drop);
            assert_eq!(may_resolve(&record, now), resolved, "{record:?} at {now:?}");
            assert_eq!(may_release(&record, now), release(&record, stamp).map(drop), "{record:?} at {now:?}");
        }
    }
}

#[test]
fn a_denial_is_refused_until_the_moment_that_was_named() {
    for record in records() {
        for now in moments().into_iter().filter(|now| may_resolve(&record, now.at).is_ok()) {
            let denied = resolve(&record, absent(now), Stamp::new(now, "operator", "looked")).map(drop);
            let expected = match (may_resolve(&record, now), denial_refused_until(&record, now)) {
                (Err(refusal), _) => Err(refusal),
                (Ok(()), Some(_)) if !now.can_judge_leases() => Err(Refusal::ClockNotTrusted),
                (Ok(()), Some(until)) if now.at <= until => Err(Refusal::QuietUntil(until)),
                (Ok(()), _) => Ok(()),
            };
            assert_eq!(denied, expected, "{record:?} at {now:?}");
        }
    }
    assert_eq!(denial_refused_until(&in_doubt(Class::External), at(3000).now), None, "its owner ended it");
    assert_eq!(denial_refused_until(&succeeded(), at(3000).now), None, "nothing to settle");
    let running = denial_refused_until(&processing(Class::External), at(1000).now);
    assert_eq!(running, Some(Time::from_millis(1000 + QUIET)), "also while its owner is alive");
}

#[test]
fn a_denial_of_a_future_dated_record_waits_from_now() {
    let claim =
        decide(Found::Nothing, &command(Class::External), new_attempt(OWNER, Begin::Processing), at(YEAR));
    let ahead = lapse(&run(claim).next, at(YEAR + LEASE)).unwrap().next;
    let now = at(5000);
    let redated = redate(&ahead, now).unwrap().next;
    let until = Time::from_millis(5000 + QUIET);
    assert_eq!(denial_refused_until(&ahead, now.now), Some(until));
    assert_eq!(denial_refused_until(&redated, now.now), Some(until));
    // The period is not over before the record is redated.
    assert!(resolve(&ahead, absent(at(YEAR - 1).now), at(YEAR - 1)).is_err());
}

#[test]
fn a_refusal_names_the_first_moment_that_changes_it() {
    for record in records() {
        for now in moments().into_iter().filter(Now::can_expire) {
            let tries: [&dyn Fn(Now) -> Result<(), Refusal>; 4] = [
                &|now| may_resolve(&record, now),
                &|now| may_release(&record, now),
                &|now| resolve(&record, absent(now), Stamp::new(now, "operator", "")).map(drop),
                &|now| expire(&record, Stamp::new(now, "sweeper", "")).map(drop),
            ];
            for attempt in tries {
                let Err(refusal) = attempt(now) else { continue };
                let Some(retry_at) = refusal.retry_at() else { continue };
                assert!(retry_at > now.at, "{refusal:?} of {record:?} at {now:?}");
                // A record dated ahead is redated first, which changes its dates.
                if is_dated_ahead(&record, now) {
                    continue;
                }
                let before = Now { at: retry_at - Duration::from_millis(1), ..now };
                assert_eq!(attempt(before), Err(refusal), "{record:?} at {now:?}");
                assert_ne!(attempt(Now { at: retry_at, ..now }), Err(refusal), "{record:?} at {now:?}");
            }
        }
    }
    assert_eq!(Refusal::InDoubt.retry_at(), None, "time alone changes nothing");
}

#[test]
fn a_lease_from_before_a_gap_lives_one_period_longer() {
    let (record, gap) = (processing(Class::External), Time::from_millis(HOUR));
    let now = Now { steady_since: Some(gap), skew: Duration::from_secs(5), ..at(HOUR + 10).now };
    let dead_from = Time::from_millis(HOUR + LEASE + 5000);
    assert_eq!(may_resolve(&record, now), Err(Refusal::LeaseAlive(dead_from)));
    assert_eq!(may_resolve(&record, Now { at: dead_from, ..now }), Ok(()));
}

#[test]
fn nothing_is_resolved_by_a_clock_that_is_not_trusted() {
    let never = Now { trust: Trust::Untrusted, ..at(YEAR).now };
    for record in [in_doubt(Class::External), lapsed(Class::External), processing(Class::External)] {
        assert_eq!(may_resolve(&record, never), Err(Refusal::ClockNotTrusted), "{record:?}");
    }
}

#[test]
fn nothing_is_released_by_a_clock_that_is_not_trusted() {
    let refused = resolve(&in_doubt(Class::External), absent(at(3000).now), at(3000)).unwrap().next;
    for (trust, expected) in [(Trust::Untrusted, Err(Refusal::ClockNotTrusted)), (Trust::Starting, Ok(()))] {
        let now = Now { trust, ..at(YEAR).now };
        let released = release(&refused, Stamp::new(now, "operator", "")).map(drop);
        assert_eq!((released, may_release(&refused, now)), (expected, expected), "{trust:?}");
    }
}
