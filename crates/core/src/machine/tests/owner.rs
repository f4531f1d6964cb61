use super::*;
use crate::record::{Doubt, Proof, State, StateName};

fn ended(record: &Record, ending: Ending) -> Result<StateName, Refusal> {
    finish(record, OWNER, ending, at(5000)).map(|write| write.next.state_name())
}

#[test]
fn peer_bug_a_stale_worker_changes_its_successors_attempt() {
    for record in every_state() {
        let mut successor = record.clone();
        successor.token = OTHER;
        assert_eq!(start(&successor, OWNER, at(5000)), Err(Refusal::Superseded));
        assert_eq!(renew(&successor, OWNER, Time::from_millis(5000)), Err(Refusal::Superseded));
        assert_eq!(abandon(&successor, OWNER, at(5000)), Err(Refusal::Superseded));
        assert_eq!(ended(&successor, Ending::Succeeded(paid())), Err(Refusal::Superseded));
        assert!(!may_send(&successor, OWNER, Time::from_millis(2001), Duration::ZERO));
    }
}

#[test]
fn only_a_claimed_record_is_started() {
    let record = claimed(Class::External);
    let started = start(&record, OWNER, at(5000)).unwrap().next;
    assert_eq!(started.state, State::Processing { lease_until: Time::from_millis(5000 + LEASE) });
    assert_eq!(started.owner_wrote_at, Time::from_millis(5000));
    for record in every_state() {
        if record.state_name() != StateName::Claimed {
            assert_eq!(start(&record, OWNER, at(5000)), Err(Refusal::WrongState), "{record:?}");
        }
    }
}

#[test]
fn a_renewal_extends_the_lease_and_changes_nothing_else() {
    let now = Time::from_millis(5000);
    for record in every_state() {
        let renewed = renew(&record, OWNER, now);
        let lease_until = now + record.policy.lease;
        match record.state {
            State::Claimed { .. } => assert_eq!(renewed.unwrap().next.state, State::Claimed { lease_until }),
            State::Processing { .. } => {
                let next = renewed.unwrap().next;
                assert_eq!(next.state, State::Processing { lease_until });
                assert_eq!(
                    (next.owner_wrote_at, next.attempt, next.fence),
                    (now, record.attempt, record.fence)
                );
            }
            _ => assert_eq!(renewed, Err(Refusal::WrongState)),
        }
    }
}

#[test]
fn only_the_owner_of_a_started_live_attempt_may_send() {
    let record = processing(Class::External);
    let lapses = 1000 + LEASE;
    assert!(may_send(&record, OWNER, Time::from_millis(lapses - 1), Duration::ZERO));
    assert!(!may_send(&record, OWNER, Time::from_millis(lapses), Duration::ZERO));
    assert!(!may_send(&record, OTHER, Time::from_millis(2000), Duration::ZERO));
    assert!(!may_send(&claimed(Class::External), OWNER, Time::from_millis(2000), Duration::ZERO));
}

#[test]
fn an_owner_silent_for_a_lease_sends_nothing() {
    let record = processing(Class::External);
    let lease = record.policy.lease;
    let set_back = Time::from_millis(1_500);
    assert!(may_send(&record, OWNER, set_back, lease.saturating_sub(Duration::from_millis(1))));
    assert!(!may_send(&record, OWNER, set_back, lease));
}

#[test]
fn an_uncertain_effect_is_resent_only_within_its_window() {
    let policy = policy(Class::Downstream)
        .with(|policy| {
            policy.lease = Duration::from_hours(48);
            (policy.ttl, policy.denied_ttl) = (Duration::from_hours(96), Duration::from_hours(96));
        })
        .expect("valid");
    let mut record = claimed_under(policy, Begin::Processing);
    let last = Time::from_millis(1000 + 24 * 3_600_000 - 65_000);
    assert!(may_send(&record, OWNER, last, Duration::ZERO), "a first attempt has no window");
    record.earlier_doubt = true;
    assert!(may_send(&record, OWNER, last - Duration::from_millis(1), Duration::ZERO));
    assert!(!may_send(&record, OWNER, last, Duration::ZERO));
}

#[test]
fn each_ending_leads_to_its_own_state() {
    let record = processing(Class::External);
    let now = Time::from_millis(5000);
    let write = finish(&record, OWNER, Ending::Succeeded(paid()), at(5000)).unwrap();
    let expires_at = now + record.policy.ttl;
    assert_eq!(write.next.state, State::Succeeded { outcome: paid(), expires_at });
    let write = finish(&record, OWNER, Ending::FailedReplayable(paid()), at(5000)).unwrap();
    assert_eq!(write.next.state, State::FailedReplayable { outcome: paid(), expires_at });
    let write = finish(&record, OWNER, Ending::NotApplied(Some(busy())), at(5000)).unwrap();
    let outcome = Some(busy());
    let state = State::FailedNotReplayable { outcome, proof: Proof::Owner, bound: true, expires_at };
    assert_eq!(write.next.state, state);
    let write = finish(&record, OWNER, Ending::NotAppliedForGood(busy()), at(5000)).unwrap();
    assert_eq!(write.next.state, State::FailedReplayable { outcome: busy(), expires_at });
    let write = finish(&record, OWNER, Ending::InDoubt, at(5000)).unwrap();
    let state = State::Unknown { doubt: Doubt::Owner, since: now, probes: 0, next_probe_at: Some(now) };
    assert_eq!(write.next.state, state);
    assert_eq!(write.next.owner_wrote_at, now, "the quiet period counts from its own UNKNOWN");
}

#[test]
fn a_refusal_for_missing_permission_expires_soon() {
    let denied = Ending::NotApplied(Some(Outcome::http(403, [("a", "b")], "")));
    let record = finish(&processing(Class::External), OWNER, denied, at(5000)).unwrap().next;
    assert_eq!(record.gone_at(), Some(Time::from_millis(5000 + 5 * 60_000)));
}

#[test]
fn a_claim_that_never_started_can_only_be_released() {
    let record = claimed(Class::External);
    assert_eq!(ended(&record, Ending::NotApplied(None)), Ok(StateName::FailedNotReplayable));
    let for_good = Ending::NotAppliedForGood(busy());
    for ending in [Ending::Succeeded(paid()), Ending::FailedReplayable(paid()), for_good, Ending::InDoubt] {
        assert_eq!(ended(&record, ending), Err(Refusal::NotStarted));
    }
}

#[test]
fn peer_bug_an_owner_cannot_finish_its_own_unknown_attempt() {
    for record in [lapsed(Class::External), in_doubt(Class::External)] {
        assert_eq!(ended(&record, Ending::Succeeded(paid())), Ok(StateName::Succeeded));
        assert_eq!(ended(&record, Ending::FailedReplayable(paid())), Ok(StateName::FailedReplayable));
        assert_eq!(ended(&record, Ending::NotApplied(None)), Ok(StateName::FailedNotReplayable));
    }
    // The owner did not know the outcome either: this is new information if others only assumed it, and none the second
    // time.
    let doubted = finish(&lapsed(Class::External), OWNER, Ending::InDoubt, at(50_000)).unwrap().next;
    assert!(matches!(doubted.state, State::Unknown { doubt: Doubt::Owner, .. }));
    assert_eq!(doubted.owner_wrote_at, Time::from_millis(50_000));
    assert_eq!(ended(&doubted, Ending::InDoubt), Err(Refusal::Settled));
}

#[test]
fn a_late_owner_overrides_a_verdict_that_denied_its_effect() {
    let denied = resolve(&in_doubt(Class::External), Verdict::Refused, at(3000)).unwrap().next;
    assert_eq!(ended(&denied, Ending::Succeeded(paid())), Ok(StateName::Succeeded));
    assert_eq!(ended(&denied, Ending::FailedReplayable(paid())), Ok(StateName::FailedReplayable));
    assert_eq!(ended(&denied, Ending::NotApplied(None)), Err(Refusal::Settled), "it agrees");
    assert_eq!(ended(&denied, Ending::NotAppliedForGood(busy())), Err(Refusal::Settled), "it agrees");
    assert_eq!(ended(&denied, Ending::InDoubt), Err(Refusal::Settled), "it knows less");
    let released = release(&denied, at(3500)).unwrap().next;
    assert_eq!(ended(&released, Ending::Succeeded(paid())), Ok(StateName::Succeeded));
}

#[test]
fn a_settled_record_stays_settled() {
    for record in every_state() {
        let own_words = matches!(record.state, State::FailedNotReplayable { proof: Proof::Owner, .. });
        if record.is_terminal() || own_words {
            for ending in [Ending::Succeeded(paid()), Ending::NotApplied(None), Ending::InDoubt] {
                assert_eq!(ended(&record, ending), Err(Refusal::Settled), "{record:?}");
            }
        }
    }
    let never_began = lapse(&claimed(Class::External), at(1000 + LEASE)).unwrap().next;
    assert_eq!(ended(&never_began, Ending::Succeeded(paid())), Err(Refusal::Settled));
}

#[test]
fn an_attempt_without_effect_does_not_settle_an_earlier_doubt() {
    let mut record = processing(Class::Downstream);
    record.earlier_doubt = true;
    let again = finish(&record, OWNER, Ending::NotApplied(Some(busy())), at(5000)).unwrap().next;
    assert_eq!(again.state_name(), StateName::Unknown);
    assert!(again.earlier_doubt, "kept until an outcome or a verdict clears it");
    let kept = finish(&record, OWNER, Ending::NotAppliedForGood(busy()), at(5000)).unwrap().next;
    assert_eq!(kept.state_name(), StateName::Unknown, "a 429 does not settle the attempt before");
    let mut claim = claimed(Class::Downstream);
    claim.earlier_doubt = true;
    assert_eq!(ended(&claim, Ending::NotApplied(None)), Ok(StateName::Unknown));
    for ending in [Ending::Succeeded(paid()), Ending::FailedReplayable(paid())] {
        assert!(
            !finish(&record, OWNER, ending, at(5000)).unwrap().next.earlier_doubt,
            "an outcome clears it"
        );
    }
}

#[test]
fn a_local_attempt_is_never_in_doubt() {
    let record = finish(&processing(Class::Local), OWNER, Ending::InDoubt, at(5000)).unwrap().next;
    assert_eq!(record.state_name(), StateName::FailedNotReplayable);
}

#[test]
fn peer_bug_a_claim_whose_acknowledgement_was_lost_is_not_recognised() {
    let decision =
        decide(Found::Nothing, &command(Class::External), new_attempt(OWNER, Begin::Processing), at(1000));
    let claim = run(decision);
    assert_eq!(applied_claim(&claim, Found::Record(&claim.next)), Some(&claim.next));
    let marked = lapse(&claim.next, at(1000 + LEASE)).unwrap().next;
    assert_eq!(applied_claim(&claim, Found::Record(&marked)), Some(&marked), "its token is proof enough");
    let mut other = claim.next.clone();
    other.token = OTHER;
    assert_eq!(applied_claim(&claim, Found::Record(&other)), None);
    for found in [Found::Nothing, Found::Moved, Found::Unreadable] {
        assert_eq!(applied_claim(&claim, found), None);
    }
}

#[test]
fn an_unacknowledged_finish_is_recognised_by_its_whole_content() {
    let record = processing(Class::External);
    let write = finish(&record, OWNER, Ending::Succeeded(paid()), at(5000)).unwrap();
    assert!(was_applied(&write, Found::Record(&write.next)));
    assert!(!was_applied(&write, Found::Record(&record)));
    // An operator's verdict over the same attempt: same token, same version, another outcome.
    let dead = at(1000 + LEASE);
    let verdict = resolve(&record, Verdict::Applied(None), dead).unwrap().next;
    assert_eq!((verdict.token, verdict.version), (write.next.token, write.next.version));
    assert!(!was_applied(&write, Found::Record(&verdict)));
    assert!(!was_applied(&write, Found::Nothing));
}

#[test]
fn a_finish_is_missing_only_where_that_is_proven() {
    let record = processing(Class::External);
    let write = finish(&record, OWNER, Ending::Succeeded(paid()), at(5000)).unwrap();
    let verdict = resolve(&record, Verdict::Applied(None), at(1000 + LEASE)).unwrap().next;
    for (found, proof) in [(&record, "as it was expected"), (&verdict, "a verdict took its version")] {
        assert_eq!(write_result(&write, Found::Record(found)), WriteResult::NotApplied, "{proof}");
    }
    // Erased, expired or removed since, or by another attempt: it may have been there.
    let erased = |record, erasure| erase(record, erasure, at(6000)).unwrap().next;
    let mut other = record.clone();
    other.token = OTHER;
    let changed = [
        erased(&write.next, Erasure::Response),
        erased(&write.next, Erasure::Record),
        erased(&verdict, Erasure::Record),
        other,
    ];
    for record in &changed {
        assert_eq!(write_result(&write, Found::Record(record)), WriteResult::Unclear, "{record:?}");
    }
    for found in [Found::Nothing, Found::Moved, Found::Unreadable] {
        assert_eq!(write_result(&write, found), WriteResult::Unclear);
    }
}

#[test]
fn an_owner_whose_finish_is_refused_returns_the_stored_answer() {
    let own = processing(Class::External);
    let refused = Outcome::http(422, [("a", "b")], "no");
    let failed =
        finish(&processing(Class::External), OWNER, Ending::FailedReplayable(refused.clone()), at(2000));
    let failed = failed.unwrap().next;
    let released = release(&not_applied(Class::External), at(2500)).unwrap().next;
    let gone = expire(&succeeded(), at(u64::MAX / 2)).unwrap().next;
    let is_in_progress = |record: &Record| overtaken(&own, Found::Record(record)) == Reply::InProgress;
    assert_eq!(overtaken(&own, Found::Record(&succeeded())), Reply::Replay(&paid()));
    assert_eq!(overtaken(&own, Found::Record(&failed)), Reply::Replay(&refused));
    assert_eq!(overtaken(&own, Found::Record(&not_applied(Class::External))), Reply::Replay(&busy()));
    assert!(
        is_in_progress(&released)
            && is_in_progress(&processing(Class::External))
            && is_in_progress(&claimed(Class::External))
    );
    assert_eq!(overtaken(&own, Found::Record(&lapsed(Class::External))), Reply::Unknown);
    assert_eq!(overtaken(&own, Found::Record(&gone)), Reply::Expired);
    assert_eq!(overtaken(&own, Found::Nothing), Reply::Unknown, "a finish never inserts");
    assert_eq!(overtaken(&own, Found::Moved), Reply::Unknown);
    assert_eq!(overtaken(&own, Found::Unreadable), Reply::Unreadable);
}

#[test]
fn a_record_that_contradicts_its_owner_is_a_conflict() {
    let (done, other) = (succeeded(), Outcome::http(201, [("location", "/charges/8")], "paid"));
    let differs = |found, ending: Ending| contradicts(found, OWNER, &ending, Clone::clone);
    assert!(!differs(Found::Record(&done), Ending::Succeeded(paid())));
    assert!(differs(Found::Record(&done), Ending::Succeeded(other)));
    assert!(
        differs(Found::Record(&done), Ending::FailedReplayable(paid())),
        "the same bytes, another meaning"
    );
    let failed = finish(&processing(Class::External), OWNER, Ending::FailedReplayable(busy()), at(2000));
    let failed = failed.unwrap().next;
    assert!(!differs(Found::Record(&failed), Ending::FailedReplayable(busy())));
    assert!(differs(Found::Record(&failed), Ending::Succeeded(busy())));
    for found in [Found::Nothing, Found::Unreadable, Found::Record(&processing(Class::Downstream))] {
        assert!(differs(found, Ending::Succeeded(paid())), "{found:?}");
        // An owner without an outcome is contradicted by none.
        assert!(!differs(found, Ending::InDoubt) && !differs(found, Ending::NotApplied(Some(busy()))));
    }
}

#[test]
fn a_response_that_is_not_stored_contradicts_no_report_of_its_own_attempt() {
    let differs = |record: &Record, token, ending: &Ending| {
        contradicts(Found::Record(record), token, ending, Clone::clone)
    };
    let success = Ending::Succeeded(paid());
    let verdict =
        resolve(&processing(Class::External), Verdict::Applied(None), at(1000 + LEASE)).unwrap().next;
    let erased = erase(&succeeded(), Erasure::Response, at(6000)).unwrap().next;
    for record in [&verdict, &erased] {
        assert!(!differs(record, OWNER, &success), "{record:?}");
        assert!(differs(record, OTHER, &success), "an effect of two attempts: {record:?}");
        assert!(differs(record, OWNER, &Ending::FailedReplayable(paid())), "{record:?}");
    }
    let other_status = Ending::Succeeded(Outcome::http(202, [("location", "/charges/7")], "paid"));
    assert!(differs(&erased, OWNER, &other_status));
    let minimal = |location| {
        let headers = [("location", location)].into_iter().collect();
        Outcome { headers, ..Outcome::not_retained(paid().status) }
    };
    for (location, is_other) in [("/charges/7", false), ("/charges/8", true)] {
        let mut record = succeeded();
        record.state = State::Succeeded { outcome: minimal(location), expires_at: Time::from_millis(9000) };
        assert_eq!(differs(&record, OWNER, &success), is_other, "{location}");
    }
    assert!(!differs(&erase_all(&succeeded()), OWNER, &Ending::InDoubt));
    assert!(differs(&erase_all(&succeeded()), OWNER, &success), "nothing is left to compare it with");
}

fn erase_all(record: &Record) -> Record {
    erase(record, Erasure::Record, at(6000)).unwrap().next
}

#[test]
fn an_owner_never_gets_the_outcome_of_another_payload() {
    let own = processing(Class::External);
    let command = command_under(policy(Class::External), &DIFFERENT);
    let claim = decide(Found::Nothing, &command, new_attempt(OTHER, Begin::Processing), at(9000));
    let successor = finish(&run(claim).next, OTHER, Ending::Succeeded(paid()), at(9500)).unwrap().next;
    assert!(outlived(&own, Found::Record(&successor)) && outlived(&own, Found::Nothing));
    assert_eq!(overtaken(&own, Found::Record(&successor)), Reply::Unknown);
    assert!(!outlived(&own, Found::Record(&succeeded())) && !outlived(&own, Found::Unreadable));
    let reselected = policy(Class::External)
        .with(|policy| {
            policy.selection = crate::fingerprint::Selection::default().excluding(["/at"]).unwrap();
        })
        .expect("valid");
    let mut other_terms = succeeded();
    other_terms.policy = Arc::new(reselected);
    assert_eq!(
        overtaken(&own, Found::Record(&other_terms)),
        Reply::Unknown,
        "hashes under two selections say nothing"
    );
}

#[test]
fn an_owner_holds_its_record_until_its_lease_ends() {
    for record in [claimed(Class::External), processing(Class::External)] {
        let time = Time::from_millis;
        assert!(is_held(&record, time(1000 + LEASE - 1)), "{record:?}");
        assert!(!is_held(&record, time(1000 + LEASE)), "{record:?}");
        assert!(!is_held(&record, time(999)), "others treat its owner as gone: {record:?}");
        assert_eq!(lease_left(&record, time(1000 + LEASE - 7)), Duration::from_millis(7));
        assert_eq!(lease_left(&record, time(1000 + LEASE + 7)), Duration::ZERO);
        assert_eq!(held_for(&record, time(1250)), Duration::from_millis(250));
    }
    assert!(!is_held(&succeeded(), Time::from_millis(2001)), "nobody owns it any more");
    assert_eq!(lease_left(&succeeded(), Time::from_millis(0)), Duration::ZERO);
}
