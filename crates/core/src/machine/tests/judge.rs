use super::*;
use crate::fingerprint::{Error, Limits, Request, Selection};
use crate::policy::AfterExpiry;
use crate::record::{Doubt, State, StateName};

fn answer<'a>(record: &'a Record, command: &Command<'_>, now: u64) -> Reply<'a> {
    match decide(Found::Record(record), command, new_attempt(OTHER, Begin::Processing), at(now)) {
        Decision::Answer(reply) => reply,
        other => panic!("expected an answer, got {other:?}"),
    }
}

fn next_attempt(record: &Record, command: &Command<'_>, now: u64) -> Write {
    run(decide(Found::Record(record), command, new_attempt(OTHER, Begin::Processing), at(now)))
}

fn marks(record: &Record, command: &Command<'_>, now: u64) -> Write {
    match decide(Found::Record(record), command, new_attempt(OTHER, Begin::Processing), at(now)) {
        Decision::MarkUnknown(write) => *write,
        other => panic!("expected UNKNOWN, got {other:?}"),
    }
}

fn different(class: Class) -> Command<'static> {
    command_under(policy(class), &DIFFERENT)
}

#[test]
fn a_key_never_seen_runs_as_the_first_attempt() {
    let command = command(Class::External);
    let write = run(decide(Found::Nothing, &command, new_attempt(OWNER, Begin::Processing), at(1000)));
    assert_eq!(write.expect, Expect::Absent);
    let record = write.next;
    assert_eq!((record.version, record.attempt, record.fence), (1, 1, 1000));
    assert_eq!(record.state, State::Processing { lease_until: Time::from_millis(1000 + LEASE) });
    assert_eq!((record.token, record.fingerprint), (OWNER, SAME));
    assert_eq!((record.operation_id, record.key_hash), (command.operation_id, command.key_hash));
    assert_eq!((record.caller_hash, &record.operation), (command.caller_hash, &command.operation));
    assert_eq!(record.policy, command.policy);
    let now = Time::from_millis(1000);
    assert_eq!((record.created_at, record.updated_at, record.owner_wrote_at), (now, now, now));
    assert!(!record.earlier_doubt);
    assert_eq!(claimed(Class::External).state_name(), StateName::Claimed);
}

#[test]
fn a_marker_is_followed_and_an_unreadable_entry_left_alone() {
    for class in [Class::Local, Class::Downstream, Class::External] {
        let command = command(class);
        let new_attempt = new_attempt(OWNER, Begin::Processing);
        assert_eq!(decide(Found::Moved, &command, new_attempt, at(0)), Decision::Follow);
        let unreadable = decide(Found::Unreadable, &command, new_attempt, at(0));
        assert_eq!(unreadable, Decision::Answer(Reply::Unreadable), "{class}");
        assert_eq!(attend(Found::Unreadable, &command, Time::MAX), Reply::Unreadable, "{class}");
    }
}

#[test]
fn peer_bug_in_progress_answered_before_mismatch() {
    for record in every_state() {
        let expected = match record.state {
            State::Expired { .. } => Reply::Expired,
            State::FailedNotReplayable { bound: false, .. } => continue,
            _ => Reply::Mismatch,
        };
        assert_eq!(answer(&record, &different(record.policy.class), 2600), expected, "{record:?}");
        let found = Found::Record(&record);
        let attended = attend(found, &different(record.policy.class), Time::from_millis(2600));
        assert_eq!(attended, expected, "{record:?}");
    }
}

#[test]
fn a_stored_outcome_is_replayed_until_it_expires() {
    let record = succeeded();
    let expires_at = record.expires_at().unwrap().as_millis();
    assert_eq!(expires_at, 2000 + 24 * 3_600_000);
    let command = command(Class::External);
    assert_eq!(answer(&record, &command, 3000), Reply::Replay(&paid()));
    assert_eq!(answer(&record, &command, expires_at - 1), Reply::Replay(&paid()));
    assert_eq!(answer(&record, &command, expires_at), Reply::Expired);
    assert_eq!(answer(&record, &different(Class::External), expires_at), Reply::Expired, "same or not");
    let refused = Outcome::http(422, [("a", "b")], "no");
    let ending = Ending::FailedReplayable(refused.clone());
    let failed = finish(&processing(Class::External), OWNER, ending, at(2000)).unwrap().next;
    assert_eq!(answer(&failed, &command, 3000), Reply::Replay(&refused));
}

#[test]
fn a_late_retry_is_refused_until_the_tombstone_expires() {
    let record = succeeded();
    let gone_at = record.gone_at().unwrap().as_millis();
    assert_eq!(gone_at, 2000 + 31 * 24 * 3_600_000);
    let command = command(Class::External);
    let tombstone = expire(&record, at(gone_at - 1)).unwrap().next;
    for record in [&record, &tombstone] {
        assert_eq!(answer(record, &command, gone_at - 1), Reply::Expired);
        let write = next_attempt(record, &command, gone_at);
        assert_eq!(write.expect, Expect::unchanged(record));
        assert_eq!((write.next.attempt, write.next.version), (1, record.version + 1));
        assert_eq!(write.next.created_at.as_millis(), gone_at);
    }
}

#[test]
fn a_key_allowed_to_rerun_does_so_when_its_outcome_expires() {
    let policy =
        policy(Class::External).with(|policy| policy.after_expiry = AfterExpiry::RunAsNew).expect("valid");
    let record = claimed_under(policy, Begin::Processing);
    let record = finish(&record, OWNER, Ending::Succeeded(paid()), at(2000)).unwrap().next;
    let expires_at = record.expires_at().unwrap().as_millis();
    assert_eq!(answer(&record, &command(Class::External), expires_at - 1), Reply::Replay(&paid()));
    let write = next_attempt(&record, &different(Class::External), expires_at);
    assert_eq!((write.next.attempt, write.next.fingerprint), (1, DIFFERENT));
    assert_eq!(write.next.policy.after_expiry, AfterExpiry::Refuse, "claimed under the current policy");
}

#[test]
fn an_attempt_that_took_no_effect_is_followed_by_the_next() {
    let record = not_applied(Class::External);
    let write = next_attempt(&record, &command(Class::External), 5000);
    assert_eq!(write.expect, Expect::unchanged(&record));
    let next = write.next;
    assert_eq!((next.attempt, next.version, next.token), (2, record.version + 1, OTHER));
    assert_eq!((next.fence, next.created_at), (5000, record.created_at));
    assert_eq!(next.owner_wrote_at, Time::from_millis(5000), "a new owner starts a new quiet period");
    assert!(!next.earlier_doubt, "nothing took effect before");
}

#[test]
fn the_fence_grows_even_where_the_clock_does_not() {
    let record = not_applied(Class::External);
    assert_eq!(next_attempt(&record, &command(Class::External), 500).next.fence, 1001);
    let gone_at = record.gone_at().unwrap().as_millis();
    let mut ahead = record;
    ahead.fence = gone_at + 7;
    assert_eq!(next_attempt(&ahead, &command(Class::External), gone_at).next.fence, gone_at + 8);
}

#[test]
fn attempts_without_effect_are_limited_by_the_policy() {
    let policy = policy(Class::External).with(|policy| policy.attempts_max = Some(2)).expect("valid");
    let command = command_under(policy.clone(), &SAME);
    let record = claimed_under(policy, Begin::Processing);
    let record = abandon(&record, OWNER, at(2000)).unwrap().next;
    let second = next_attempt(&record, &command, 3000).next;
    let second = finish(&second, OTHER, Ending::NotApplied(Some(busy())), at(4000)).unwrap().next;
    assert_eq!(answer(&second, &command, 5000), Reply::AttemptsExhausted);
    let now = Time::from_millis(5000);
    assert_eq!(
        attend(Found::Record(&second), &command, now),
        Reply::Replay(&busy()),
        "a result needs no attempt"
    );
    let third = release(&second, at(6000)).unwrap().next;
    let third = run(decide(Found::Record(&third), &command, new_attempt(THIRD, Begin::Processing), at(7000)));
    assert_eq!(third.next.attempt, 3, "an operator may allow one more");
    let bare = next_attempt(&record, &command, 3000).next;
    let bare = abandon(&bare, OTHER, at(4000)).unwrap().next;
    assert_eq!(attend(Found::Record(&bare), &command, now), Reply::AttemptsExhausted);
}

#[test]
fn a_claim_that_never_started_uses_up_no_attempt() {
    let policy = policy(Class::External).with(|policy| policy.attempts_max = Some(1)).expect("valid");
    let command = command_under(policy.clone(), &SAME);
    let dead = claimed_under(policy, Begin::Claimed);
    let swept = lapse(&dead, at(1000 + LEASE)).unwrap().next;
    for record in [dead, swept] {
        assert_eq!(next_attempt(&record, &command, 1000 + LEASE).next.attempt, 2);
    }
}

#[test]
fn an_attempt_uses_the_timing_of_its_own_claim() {
    let hasty = policy(Class::Downstream);
    let patient = hasty
        .clone()
        .with(|policy| {
            policy.lease = hasty.lease * 2;
            policy.work_deadline = hasty.work_deadline * 5;
            policy.skew = Duration::from_secs(1);
            policy.ttl = hasty.ttl * 3;
        })
        .expect("valid");
    let patient_command = command_under(patient.clone(), &SAME);
    let next = next_attempt(&not_applied(Class::Downstream), &patient_command, 5000).next;
    assert_eq!(
        (next.policy.lease, next.policy.work_deadline, next.policy.skew),
        (patient.lease, patient.work_deadline, patient.skew)
    );
    assert_eq!(next.policy.ttl, hasty.ttl, "everything else as it was claimed");
    assert_eq!(next.state, State::Processing { lease_until: Time::from_millis(5000) + patient.lease });
    // If an earlier attempt is in doubt, the longer deadlines count.
    let slow = claimed_under(patient.clone(), Begin::Processing);
    let dead = 1000 + 2 * LEASE + 1000;
    let next = next_attempt(&slow, &command(Class::Downstream), dead).next;
    assert_eq!(next.policy.work_deadline, patient.work_deadline);
    assert_eq!((next.policy.lease, next.policy.skew), (patient.lease, patient.skew));
    let same = next_attempt(&not_applied(Class::Downstream), &command(Class::Downstream), 5000).next;
    assert_eq!(same.policy, not_applied(Class::Downstream).policy);
}

#[test]
fn an_expired_attempt_without_effect_counts_as_absent() {
    let record = not_applied(Class::External);
    let gone_at = record.gone_at().unwrap().as_millis();
    assert_eq!(answer(&record, &different(Class::External), gone_at - 1), Reply::Mismatch);
    let write = next_attempt(&record, &different(Class::External), gone_at);
    assert_eq!((write.next.attempt, write.next.fingerprint), (1, DIFFERENT));
    assert_eq!(write.next.operation_id, record.operation_id);
    let attended = attend(Found::Record(&record), &command(Class::External), Time::from_millis(gone_at));
    assert_eq!(attended, Reply::InProgress, "a waiter starts nothing");
}

#[test]
fn a_live_lease_is_awaited_and_a_dead_one_taken_over() {
    for class in [Class::Local, Class::Downstream, Class::External] {
        let record = claimed(class);
        assert_eq!(answer(&record, &command(class), 1000 + LEASE - 1), Reply::InProgress);
        let next = next_attempt(&record, &command(class), 1000 + LEASE).next;
        assert_eq!((next.attempt, next.token), (2, OTHER));
        assert!(!next.earlier_doubt, "it had not started");
        assert_eq!(answer(&processing(class), &command(class), 1000 + LEASE - 1), Reply::InProgress);
    }
}

#[test]
fn clocks_that_may_disagree_let_a_lease_live_longer() {
    let policy = policy(Class::External).with(|policy| policy.skew = Duration::from_secs(2)).expect("valid");
    let record = claimed_under(policy, Begin::Claimed);
    assert_eq!(answer(&record, &command(Class::External), 1000 + LEASE + 1999), Reply::InProgress);
    assert_eq!(next_attempt(&record, &command(Class::External), 1000 + LEASE + 2000).next.attempt, 2);
}

#[test]
fn a_dead_external_attempt_becomes_unknown_and_is_never_taken_over() {
    let record = processing(Class::External);
    let write = marks(&record, &command(Class::External), 1000 + LEASE);
    assert_eq!(write.expect, Expect::unchanged(&record));
    let now = Time::from_millis(1000 + LEASE);
    let since = State::Unknown { doubt: Doubt::Lapsed, since: now, probes: 0, next_probe_at: Some(now) };
    assert_eq!(write.next.state, since);
    assert_eq!(write.next.owner_wrote_at, record.owner_wrote_at, "the owner did not write this");
    for now in [40_000, u64::MAX] {
        assert_eq!(answer(&write.next, &command(Class::External), now), Reply::Unknown);
        assert_eq!(answer(&in_doubt(Class::External), &command(Class::External), now), Reply::Unknown);
    }
}

#[test]
fn a_dead_downstream_attempt_is_repeated_only_within_its_window() {
    let command = command(Class::Downstream);
    let last = 1000 + 24 * 3_600_000 - 65_000;
    for record in [processing(Class::Downstream), lapsed(Class::Downstream), in_doubt(Class::Downstream)] {
        let next = next_attempt(&record, &command, last - 1).next;
        assert_eq!(next.attempt, 2);
        assert!(next.earlier_doubt, "the first attempt may have taken effect");
        assert_eq!(next.created_at, record.created_at, "the window counts from the first attempt");
    }
    drop(marks(&processing(Class::Downstream), &command, last));
    assert_eq!(answer(&lapsed(Class::Downstream), &command, last), Reply::Unknown);
}

#[test]
fn clock_skew_shortens_the_time_to_repeat() {
    let policy =
        policy(Class::Downstream).with(|policy| policy.skew = Duration::from_secs(2)).expect("valid");
    let record = claimed_under(policy, Begin::Processing);
    let last = 1000 + 24 * 3_600_000 - 65_000 - 2000;
    assert_eq!(next_attempt(&record, &command(Class::Downstream), last - 1).next.attempt, 2);
    drop(marks(&record, &command(Class::Downstream), last));
}

#[test]
fn a_claim_that_inherited_a_doubt_keeps_it() {
    let command = command(Class::Downstream);
    let claim = new_attempt(OTHER, Begin::Claimed);
    let dead = processing(Class::Downstream);
    let second = run(decide(Found::Record(&dead), &command, claim, at(1000 + LEASE))).next;
    assert!(second.earlier_doubt);
    let again = new_attempt(THIRD, Begin::Processing);
    let third = run(decide(Found::Record(&second), &command, again, at(1000 + 2 * LEASE))).next;
    assert!(third.earlier_doubt, "taken over once more, still in doubt");
    drop(marks(&second, &command, 1000 + 24 * 3_600_000));
}

#[test]
fn a_local_attempt_whose_transaction_is_gone_runs_again() {
    let next = next_attempt(&processing(Class::Local), &command(Class::Local), u64::MAX / 2).next;
    assert_eq!(next.attempt, 2);
    assert!(!next.earlier_doubt, "nothing can have committed");
}

#[test]
fn a_released_key_takes_the_next_payload() {
    let released = release(&not_applied(Class::External), at(2500)).unwrap().next;
    let mut newer = different(Class::Downstream);
    newer.policy = Arc::new(policy(Class::Downstream));
    let next = next_attempt(&released, &newer, 3000).next;
    assert_eq!((next.attempt, next.fingerprint), (2, DIFFERENT));
    assert_eq!(next.policy.class, Class::Downstream, "it is claimed again, under the current policy");
    assert_eq!(next.operation_id, released.operation_id);
    let attended = attend(Found::Record(&released), &newer, Time::from_millis(3000));
    assert_eq!(attended, Reply::InProgress);
}

#[test]
fn a_waiter_gets_results_and_starts_nothing() {
    let command = command(Class::Downstream);
    let now = Time::from_millis(1000 + LEASE);
    let attend = |record: &Record| match attend(Found::Record(record), &command, now) {
        Reply::Replay(outcome) => format!("replay {:?}", outcome.status),
        other => format!("{other:?}"),
    };
    assert_eq!(attend(&not_applied(Class::Downstream)), "replay Http(429)");
    assert_eq!(attend(&abandon(&processing(Class::Downstream), OWNER, at(2000)).unwrap().next), "InProgress");
    assert_eq!(attend(&processing(Class::Downstream)), "InProgress", "this needs a new attempt");
    assert_eq!(attend(&claimed(Class::Downstream)), "InProgress");
    assert_eq!(attend(&processing(Class::External)), "Unknown");
    assert_eq!(attend(&in_doubt(Class::External)), "Unknown");
    assert_eq!(
        attend(&in_doubt(Class::Downstream)),
        "Unknown",
        "another request may try again; a waiter may not"
    );
    assert_eq!(attend(&succeeded()), "replay Http(201)");
    assert_eq!(super::super::attend(Found::Nothing, &command, now), Reply::InProgress);
    assert_eq!(super::super::attend(Found::Moved, &command, now), Reply::InProgress);
}

/// A payload that is fingerprinted differently under each selection.
struct Chosen;

impl Payload for Chosen {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        let broken = Request { content_type: &[b"application/json"], ..Request::new("POST", "op", "", b"{") };
        match selection.headers() {
            [] if selection.version() == 1 => Ok(SAME),
            [] => broken.fingerprint(selection, &Limits::default()),
            [header] if header == "x-broken" => broken.fingerprint(&Selection::default(), &Limits::default()),
            _ => Ok(DIFFERENT),
        }
    }
}

#[test]
fn a_retry_is_judged_by_the_records_own_selection() {
    let under = |header: &str| {
        let selection = Selection::default().with_headers([header]).unwrap();
        policy(Class::External).with(|policy| policy.selection = selection).expect("valid")
    };
    let mut retry = command_under(under("x-today"), &DIFFERENT);
    retry.payload = &Chosen;
    // Claimed when no header was selected; today's fingerprint differs, the record's own does not.
    assert_eq!(answer(&succeeded(), &retry, 3000), Reply::Replay(&paid()));
    let finished = |header: &str| {
        let record = claimed_under(under(header), Begin::Processing);
        finish(&record, OWNER, Ending::Succeeded(paid()), at(2000)).unwrap().next
    };
    assert_eq!(answer(&finished("x-other"), &retry, 3000), Reply::Mismatch);
    assert_eq!(
        answer(&finished("x-broken"), &retry, 3000),
        Reply::Mismatch,
        "the record's payload could be fingerprinted, this one cannot"
    );
    let newer = Selection::from_parts(9, vec![], vec![], vec![]).unwrap();
    let newer = policy(Class::External).with(|policy| policy.selection = newer).expect("valid");
    let record = claimed_under(newer, Begin::Processing);
    assert_eq!(answer(&record, &retry, 3000), Reply::Unreadable, "a newer node's algorithm");
}

#[test]
fn only_a_downstream_record_may_repeat_within_its_window() {
    let downstream = in_doubt(Class::Downstream);
    let last = dates::repeat_before(&downstream, at(0).now).as_millis() - 1;
    assert!(may_repeat(&downstream, at(last).now) && !may_repeat(&downstream, at(last + 1).now));
    assert!(!may_repeat(&in_doubt(Class::External), at(0).now));
}

#[test]
fn a_released_key_takes_the_next_requests_selection_too() {
    let today = policy(Class::External)
        .with(|policy| policy.selection = Selection::default().with_headers(["x-today"]).unwrap())
        .expect("valid");
    let mut request = command_under(today.clone(), &DIFFERENT);
    request.payload = &Chosen;
    let released = release(&not_applied(Class::External), at(2500)).unwrap().next;
    let next = next_attempt(&released, &request, 3000).next;
    assert_eq!(next.policy.selection, today.selection);
    // The fingerprint and its selection are stored together: the retry is recognised, and no other request is.
    let done = finish(&next, OTHER, Ending::Succeeded(paid()), at(3500)).unwrap().next;
    assert_eq!(answer(&done, &request, 4000), Reply::Replay(&paid()));
    assert_eq!(answer(&done, &command(Class::External), 4000), Reply::Mismatch);
}
