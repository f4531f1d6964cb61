//! Clocks that may disagree by up to the policy's skew: others wait that much longer before they judge an owner, and
//! the owner itself gains no time.

use super::*;
use crate::record::{State, StateName};

const SKEW: u64 = 2000;
const DEADLINE: u64 = 65_000;
const WINDOW: u64 = 24 * 3_600_000;
/// When the lease of a record claimed at the moment 1000 ends for its owner, and when for everybody else.
const LAPSES: u64 = 1000 + LEASE;
const DEAD: u64 = LAPSES + SKEW;
/// The last moment at which the absence of the effect proves nothing.
const QUIET_UNTIL: u64 = 1000 + LEASE + DEADLINE + SKEW;
/// From when its effect may not be sent again.
const FORGOTTEN: u64 = 1000 + WINDOW - DEADLINE - SKEW;

fn skewed(class: Class) -> Policy {
    policy(class).with(|policy| policy.skew = Duration::from_millis(SKEW)).expect("valid")
}

fn record(class: Class, begin: Begin) -> Record {
    claimed_under(skewed(class), begin)
}

fn time(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn ask(record: &Record, now: u64) -> Decision<'_> {
    let command = command_under(skewed(record.policy.class), &SAME);
    decide(Found::Record(record), &command, new_attempt(OTHER, Begin::Processing), at(now))
}

fn absent(asked_at: u64) -> Verdict {
    Verdict::NotApplied { asked_at: time(asked_at) }
}

#[test]
fn a_lease_is_dead_to_others_only_after_the_skew() {
    for class in [Class::Local, Class::Downstream, Class::External] {
        for begin in [Begin::Claimed, Begin::Processing] {
            let record = record(class, begin);
            let command = command_under(skewed(class), &SAME);
            assert_eq!(ask(&record, DEAD - 1), Decision::Answer(Reply::InProgress), "{record:?}");
            assert_eq!(attend(Found::Record(&record), &command, time(DEAD - 1)), Reply::InProgress);
            assert_eq!(lapse(&record, at(DEAD - 1)), Err(Refusal::LeaseAlive(time(DEAD))), "{record:?}");
            assert!(lapse(&record, at(DEAD)).is_ok(), "{record:?}");
            match ask(&record, DEAD) {
                Decision::Run(write) => assert_eq!(write.next.attempt, 2),
                Decision::MarkUnknown(write) => {
                    assert_eq!((class, begin), (Class::External, Begin::Processing));
                    assert_eq!(write.next.state_name(), StateName::Unknown);
                }
                other => panic!("{other:?} for {record:?}"),
            }
        }
    }
}

#[test]
fn an_operator_waits_for_the_skew_after_a_lease() {
    let processing = record(Class::External, Begin::Processing);
    let applied = |now| resolve(&processing, Verdict::Applied(None), at(now));
    assert_eq!(applied(DEAD - 1), Err(Refusal::LeaseAlive(time(DEAD))));
    assert!(applied(DEAD).is_ok());
    let claimed = record(Class::External, Begin::Claimed);
    assert_eq!(release(&claimed, at(DEAD - 1)), Err(Refusal::LeaseAlive(time(DEAD))));
    assert!(release(&claimed, at(DEAD)).is_ok());
}

#[test]
fn a_sweeper_takes_a_lease_only_after_the_skew() {
    for begin in [Begin::Claimed, Begin::Processing] {
        let record = record(Class::External, begin);
        assert_eq!(record.due_at(), Some(time(DEAD)));
        assert_eq!(due(&record, time(DEAD - 1)), Due::Nothing);
        assert_eq!(due(&record, time(DEAD)), Due::Lapsed);
        let renewed = renew(&record, OWNER, time(5000)).unwrap().next;
        assert_eq!(renewed.due_at(), Some(time(5000 + LEASE + SKEW)));
    }
    let done = record(Class::External, Begin::Processing);
    let done = finish(&done, OWNER, Ending::Succeeded(paid()), at(2000)).unwrap().next;
    assert_eq!(done.due_at(), done.expires_at(), "the skew applies only to leases");
}

#[test]
fn an_owner_may_not_send_within_the_skew_after_its_lease() {
    let record = record(Class::External, Begin::Processing);
    assert!(may_send(&record, OWNER, time(LAPSES - 1), Duration::ZERO));
    for late in [LAPSES, LAPSES + 1, DEAD - 1, DEAD] {
        assert!(!may_send(&record, OWNER, time(late), Duration::ZERO), "at {late}");
    }
}

#[test]
fn absence_proves_nothing_before_lease_deadline_and_skew_are_over() {
    let processing = record(Class::External, Begin::Processing);
    let unknown = lapse(&processing, at(DEAD)).unwrap().next;
    let refusal = Err(Refusal::QuietUntil(time(QUIET_UNTIL)));
    assert_eq!(reconcile(&unknown, absent(QUIET_UNTIL), at(QUIET_UNTIL + 9999)), refusal);
    assert!(reconcile(&unknown, absent(QUIET_UNTIL + 1), at(QUIET_UNTIL + 1)).is_ok());
    for record in [&processing, &unknown] {
        assert_eq!(resolve(record, absent(QUIET_UNTIL), at(QUIET_UNTIL)), refusal);
        assert_eq!(resolve(record, Verdict::Failed(busy()), at(QUIET_UNTIL)), refusal);
        assert!(resolve(record, absent(QUIET_UNTIL + 1), at(QUIET_UNTIL + 1)).is_ok());
        assert!(resolve(record, Verdict::Failed(busy()), at(QUIET_UNTIL + 1)).is_ok());
    }
}

#[test]
fn a_renewal_or_an_owners_doubt_shortens_no_quiet_period() {
    let renewed = renew(&record(Class::External, Begin::Processing), OWNER, time(20_000)).unwrap().next;
    let unknown = lapse(&renewed, at(20_000 + LEASE + SKEW)).unwrap().next;
    let quiet_until = 20_000 + LEASE + DEADLINE + SKEW;
    assert!(reconcile(&unknown, absent(quiet_until), at(quiet_until)).is_err());
    assert!(reconcile(&unknown, absent(quiet_until + 1), at(quiet_until + 1)).is_ok());
    let processing = record(Class::External, Begin::Processing);
    let in_doubt = finish(&processing, OWNER, Ending::InDoubt, at(2000)).unwrap().next;
    let quiet_until = 2000 + LEASE + DEADLINE + SKEW;
    assert!(reconcile(&in_doubt, absent(quiet_until), at(quiet_until)).is_err());
    assert!(reconcile(&in_doubt, absent(quiet_until + 1), at(quiet_until + 1)).is_ok());
}

#[test]
fn a_doubt_is_repeated_only_while_every_clock_allows_it() {
    let processing = record(Class::Downstream, Begin::Processing);
    let unknown = lapse(&processing, at(DEAD)).unwrap().next;
    for record in [&processing, &unknown] {
        assert_eq!(to_be_asked_from(record, time(FORGOTTEN)), time(FORGOTTEN));
        let next = run(ask(record, FORGOTTEN - 1)).next;
        assert!(next.earlier_doubt && next.attempt == 2);
    }
    assert!(matches!(ask(&processing, FORGOTTEN), Decision::MarkUnknown(_)));
    assert_eq!(ask(&unknown, FORGOTTEN), Decision::Answer(Reply::Unknown));
}

#[test]
fn a_repeat_is_sent_only_while_every_clock_allows_it() {
    let patient = skewed(Class::Downstream)
        .with(|policy| {
            policy.lease = Duration::from_hours(48);
            (policy.ttl, policy.denied_ttl) = (Duration::from_hours(96), Duration::from_hours(96));
        })
        .expect("valid");
    let mut record = claimed_under(patient, Begin::Processing);
    assert!(may_send(&record, OWNER, time(FORGOTTEN), Duration::ZERO), "a first attempt has no window");
    record.earlier_doubt = true;
    assert!(may_send(&record, OWNER, time(FORGOTTEN - 1), Duration::ZERO));
    assert!(!may_send(&record, OWNER, time(FORGOTTEN), Duration::ZERO));
}

#[test]
fn a_late_owner_still_starts_and_renews_within_the_skew() {
    // Nobody can have taken over yet; otherwise the swap is refused.
    let claimed = record(Class::External, Begin::Claimed);
    let started = start(&claimed, OWNER, at(DEAD - 1)).unwrap().next;
    assert_eq!(started.state, State::Processing { lease_until: time(DEAD - 1 + LEASE) });
    assert!(renew(&started, OWNER, time(DEAD + LEASE)).is_ok());
}

#[test]
fn a_renewal_by_a_slow_clock_shortens_nothing() {
    let record = record(Class::External, Begin::Processing);
    let renewed = |now| {
        let next = renew(&record, OWNER, time(now)).unwrap().next;
        let State::Processing { lease_until } = next.state else { panic!("{next:?}") };
        (lease_until, next.owner_wrote_at, next.updated_at)
    };
    // The owner may never learn of this renewal, and then acts on the lease that it knows.
    let kept = (time(1000 + LEASE), time(1000));
    for back in [999, 500, 0] {
        let (lease_until, wrote_at, updated_at) = renewed(back);
        assert_eq!(((lease_until, wrote_at), updated_at), (kept, time(back)));
    }
    assert_eq!(renewed(1001), (time(1001 + LEASE), time(1001), time(1001)));
    // A date further ahead than the skew was written by a wrong clock, and is corrected.
    let mut wrong = record.clone();
    wrong.owner_wrote_at = time(90_000);
    wrong.state = State::Processing { lease_until: time(90_000 + LEASE) };
    let righted = renew(&wrong, OWNER, time(2000)).unwrap().next;
    assert_eq!(righted.state, State::Processing { lease_until: time(2000 + SKEW + LEASE) });
    assert_eq!(righted.owner_wrote_at, time(2000 + SKEW));
}

#[test]
fn the_published_repeat_window_is_the_one_enforced() {
    let unknown = lapse(&record(Class::Downstream, Begin::Processing), at(DEAD)).unwrap().next;
    for judge_skew in [0, SKEW, 3 * SKEW] {
        let now = |millis| Now { skew: Duration::from_millis(judge_skew), ..time(millis).into() };
        let within = repeat_within(&unknown.policy, now(0)).expect("class downstream repeats");
        let closed = unknown.created_at + within;
        assert!(may_repeat(&unknown, now(closed.as_millis() - 1)), "{judge_skew}");
        assert!(!may_repeat(&unknown, now(closed.as_millis())), "{judge_skew}");
    }
    for class in [Class::Local, Class::External] {
        assert_eq!(repeat_within(&skewed(class), time(0)), None, "{class}");
    }
}

#[test]
fn a_write_from_the_future_is_one_beyond_the_larger_skew() {
    let record = record(Class::External, Begin::Processing);
    let late = finish(&record, OWNER, Ending::Succeeded(paid()), at(9000)).unwrap().next;
    assert_eq!(written_ahead_by(&late, time(9000 - SKEW)), None);
    assert_eq!(written_ahead_by(&late, time(9000 - SKEW - 1)), Some(Duration::from_millis(SKEW + 1)));
    assert_eq!(
        written_ahead_by(&late, Now { skew: Duration::from_secs(9), ..time(0).into() }),
        None,
        "within the judge's own skew"
    );
}
