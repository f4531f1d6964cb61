use super::*;
use crate::outcome::{Body, Status};
use crate::record::{Doubt, Proof, State, StateName};

const QUIET: u64 = LEASE + 65_000;

fn absent(asked_at: u64) -> Verdict {
    Verdict::NotApplied { asked_at: Time::from_millis(asked_at) }
}

fn name(result: Result<Write, Refusal>) -> Result<StateName, Refusal> {
    result.map(|write| write.next.state_name())
}

#[test]
fn a_dead_lease_ends_as_what_can_be_proven() {
    let dead = at(1000 + LEASE);
    assert_eq!(name(lapse(&processing(Class::External), dead)), Ok(StateName::Unknown));
    assert_eq!(name(lapse(&processing(Class::Downstream), dead)), Ok(StateName::Unknown));
    assert_eq!(name(lapse(&processing(Class::Local), dead)), Ok(StateName::FailedNotReplayable));
    let never_began = lapse(&claimed(Class::External), dead).unwrap().next;
    let expires_at = dead.now.at + never_began.policy.ttl;
    let proof = Proof::NeverBegan;
    let state = State::FailedNotReplayable { outcome: None, proof, bound: true, expires_at };
    assert_eq!(never_began.state, state);
    let mut doubtful = claimed(Class::Downstream);
    doubtful.earlier_doubt = true;
    assert_eq!(name(lapse(&doubtful, dead)), Ok(StateName::Unknown));
    assert_eq!(
        lapse(&processing(Class::External), at(1000 + LEASE - 1)),
        Err(Refusal::LeaseAlive(Time::from_millis(1000 + LEASE)))
    );
    for record in every_state() {
        if !matches!(record.state, State::Claimed { .. } | State::Processing { .. }) {
            assert_eq!(lapse(&record, at(u64::MAX)), Err(Refusal::WrongState));
        }
    }
}

#[test]
fn peer_bug_not_found_counts_as_proof() {
    let record = lapsed(Class::External);
    let quiet_until = 1000 + QUIET;
    let refusal = Err(Refusal::QuietUntil(Time::from_millis(quiet_until)));
    assert_eq!(name(reconcile(&record, absent(quiet_until), at(quiet_until))), refusal);
    let settled = reconcile(&record, absent(quiet_until + 1), at(quiet_until + 1)).unwrap().next;
    assert_eq!(settled.state_name(), StateName::FailedNotReplayable);
    // A clock that runs ahead does not shorten the wait.
    assert_eq!(name(reconcile(&record, absent(u64::MAX), at(quiet_until))), refusal);
    assert_eq!(name(resolve(&record, absent(u64::MAX), at(quiet_until))), refusal);
    // The time of the question counts, not that of the answer.
    assert_eq!(name(reconcile(&record, absent(quiet_until), at(quiet_until + 9999))), refusal);
}

#[test]
fn the_quiet_period_counts_from_the_owners_last_write() {
    let renewed = renew(&processing(Class::External), OWNER, Time::from_millis(20_000)).unwrap().next;
    let record = lapse(&renewed, at(20_000 + LEASE)).unwrap().next;
    assert!(reconcile(&record, absent(20_000 + QUIET), at(u64::MAX)).is_err());
    assert!(reconcile(&record, absent(20_001 + QUIET), at(u64::MAX)).is_ok());
    assert!(reconcile(&in_doubt(Class::External), absent(2000 + QUIET), at(u64::MAX)).is_err());
    assert!(reconcile(&in_doubt(Class::External), absent(2001 + QUIET), at(u64::MAX)).is_ok());
}

#[test]
fn a_found_effect_counts_at_once() {
    let record = lapsed(Class::External);
    let now = at(40_000);
    let expires_at = now.now.at + record.policy.ttl;
    let found = reconcile(&record, Verdict::Applied(Some(paid())), now).unwrap().next;
    assert_eq!(found.state, State::Succeeded { outcome: paid(), expires_at });
    let failed = reconcile(&record, Verdict::Failed(busy()), now).unwrap().next;
    assert_eq!(failed.state, State::FailedReplayable { outcome: busy(), expires_at });
    let refused = reconcile(&record, Verdict::Refused, now).unwrap().next;
    let proof = Proof::Verdict;
    let state = State::FailedNotReplayable { outcome: None, proof, bound: true, expires_at };
    assert_eq!(refused.state, state);
}

#[test]
fn an_effect_found_without_its_answer_still_counts() {
    let record = resolve(&in_doubt(Class::External), Verdict::Applied(None), at(3000)).unwrap().next;
    let State::Succeeded { outcome, .. } = &record.state else { panic!("{record:?}") };
    assert_eq!((outcome.status, &outcome.body), (Status::Value, &Body::NotRetained));
}

#[test]
fn a_reconciler_settles_nothing_but_unknown() {
    for record in every_state() {
        let unknown = record.state_name() == StateName::Unknown;
        let settled = reconcile(&record, Verdict::Applied(None), at(u64::MAX / 2));
        assert_eq!(settled.is_ok(), unknown, "{record:?}");
        assert_eq!(postpone(&record, None, Time::MAX).is_ok(), unknown, "{record:?}");
        assert_eq!(plan_probe(&record, None).is_ok(), unknown, "{record:?}");
    }
}

#[test]
fn a_failed_probe_is_counted_and_postponed() {
    let record = lapsed(Class::External);
    let next_probe_at = Some(Time::from_millis(99_000));
    let once = postpone(&record, next_probe_at, Time::from_millis(50_000)).unwrap().next;
    let since = Time::from_millis(1000 + LEASE);
    assert_eq!(once.state, State::Unknown { doubt: Doubt::Lapsed, since, probes: 1, next_probe_at });
    assert_eq!(once.owner_wrote_at, record.owner_wrote_at);
    let twice = postpone(&once, None, Time::from_millis(99_000)).unwrap().next;
    let state = State::Unknown { doubt: Doubt::Lapsed, since, probes: 2, next_probe_at: None };
    assert_eq!((twice.state.clone(), twice.due_at()), (state, None), "left to an operator");
}

#[test]
fn a_planned_probe_is_not_counted() {
    let record = lapsed(Class::External);
    let next_probe_at = Some(Time::from_millis(99_000));
    let planned = plan_probe(&record, next_probe_at).unwrap().next;
    let since = Time::from_millis(1000 + LEASE);
    assert_eq!(planned.state, State::Unknown { doubt: Doubt::Lapsed, since, probes: 0, next_probe_at });
    assert_eq!(planned.due_at(), next_probe_at);
    assert_eq!((planned.updated_at, &planned.history), (record.updated_at, &record.history));
    assert_eq!(planned.version, record.version + 1, "another node's write is refused");
}

#[test]
fn an_operator_settles_only_unknown_or_dead_records() {
    for record in every_state() {
        let applied = name(resolve(&record, Verdict::Applied(None), at(u64::MAX / 2)));
        match record.state_name() {
            StateName::Unknown | StateName::Processing => assert_eq!(applied, Ok(StateName::Succeeded)),
            _ => assert_eq!(applied, Err(Refusal::WrongState), "{record:?}"),
        }
    }
    let alive = resolve(&processing(Class::External), Verdict::Applied(None), at(1000 + LEASE - 1));
    assert_eq!(alive, Err(Refusal::LeaseAlive(Time::from_millis(1000 + LEASE))));
}

#[test]
fn an_operator_denies_an_effect_only_after_its_owners_deadline() {
    let quiet_until = 1000 + QUIET;
    let refusal = Err(Refusal::QuietUntil(Time::from_millis(quiet_until)));
    for record in [lapsed(Class::External), processing(Class::External)] {
        assert_eq!(name(resolve(&record, absent(quiet_until), at(quiet_until))), refusal);
        assert_eq!(name(resolve(&record, Verdict::Failed(busy()), at(quiet_until))), refusal);
        let later = at(quiet_until + 1);
        assert!(resolve(&record, absent(quiet_until + 1), later).is_ok());
        assert!(resolve(&record, Verdict::Failed(busy()), later).is_ok());
        assert!(
            resolve(&record, Verdict::Refused, at(quiet_until)).is_ok(),
            "the provider itself refuses it"
        );
    }
    // Its own owner will not act again, but the owner of the attempt before may.
    let mut record = in_doubt(Class::Downstream);
    record.earlier_doubt = true;
    assert!(resolve(&record, absent(2000 + QUIET), at(2000 + QUIET)).is_err());
    assert!(resolve(&record, Verdict::Failed(busy()), at(2000 + QUIET)).is_err());
    assert!(resolve(&record, absent(2001 + QUIET), at(2001 + QUIET)).is_ok());
    // An owner that ended the attempt itself will not act again.
    assert!(resolve(&in_doubt(Class::External), absent(3000), at(3000)).is_ok());
    assert!(resolve(&in_doubt(Class::External), Verdict::Failed(busy()), at(3000)).is_ok());
}

#[test]
fn a_verdict_settles_every_doubt() {
    let mut record = in_doubt(Class::Downstream);
    record.earlier_doubt = true;
    for verdict in [Verdict::Applied(None), Verdict::Failed(busy()), Verdict::Refused] {
        assert!(!resolve(&record, verdict, at(2001 + QUIET)).unwrap().next.earlier_doubt);
    }
}

#[test]
fn only_a_key_without_effect_is_released() {
    for record in every_state() {
        let released = release(&record, at(40_000));
        match record.state {
            State::FailedNotReplayable { expires_at, proof, ref outcome, .. } => {
                let outcome = outcome.clone();
                let state = State::FailedNotReplayable { outcome, proof, bound: false, expires_at };
                assert_eq!(released.unwrap().next.state, state);
            }
            State::Claimed { .. } => {
                let expires_at = Time::from_millis(40_000) + record.policy.ttl;
                let proof = Proof::NeverBegan;
                let state = State::FailedNotReplayable { outcome: None, proof, bound: false, expires_at };
                assert_eq!(released.unwrap().next.state, state);
            }
            _ => assert_eq!(released, Err(Refusal::WrongState), "{record:?}"),
        }
    }
    assert_eq!(
        release(&claimed(Class::External), at(1000 + LEASE - 1)),
        Err(Refusal::LeaseAlive(Time::from_millis(1000 + LEASE)))
    );
    let mut doubtful = claimed(Class::Downstream);
    doubtful.earlier_doubt = true;
    assert_eq!(release(&doubtful, at(1000 + LEASE)), Err(Refusal::InDoubt));
}

#[test]
fn a_reconciler_may_only_lengthen_the_quiet_period() {
    let record = lapsed(Class::External);
    let settle = |quiet: u64, asked: u64| {
        name(reconcile_after(&record, Duration::from_millis(quiet), absent(asked), at(asked)))
    };
    let until = |millis| Err(Refusal::QuietUntil(Time::from_millis(millis)));
    assert_eq!(settle(QUIET + 500, 1000 + QUIET + 500), until(1000 + QUIET + 500));
    assert_eq!(settle(QUIET + 500, 1001 + QUIET + 500), Ok(StateName::FailedNotReplayable));
    assert_eq!(settle(10, 1000 + QUIET), until(1000 + QUIET));
    // It starts when the record's own quiet period starts: after a gap in time, at the gap.
    let gap = 10_000_000;
    let stamp = at(gap + QUIET + 500);
    let stamp = Stamp { now: Now { steady_since: Some(Time::from_millis(gap)), ..stamp.now }, ..stamp };
    let denied =
        reconcile_after(&record, Duration::from_millis(QUIET + 500), absent(gap + QUIET + 500), stamp);
    assert_eq!(name(denied), until(gap + QUIET + 500));
}
