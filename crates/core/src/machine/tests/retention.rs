use super::*;
use crate::policy::AfterExpiry;
use crate::record::{State, StateName};

#[test]
fn an_expired_outcome_becomes_a_tombstone_from_its_expiry() {
    let record = succeeded();
    let expires_at = record.expires_at().unwrap();
    let early = expires_at.as_millis() - 1;
    assert_eq!(expire(&record, at(early)), Err(Refusal::NotBefore(expires_at)));
    for late in [expires_at.as_millis(), expires_at.as_millis() + 777] {
        let until = expires_at + record.policy.tombstone;
        assert_eq!(expire(&record, at(late)).unwrap().next.state, State::Expired { until });
    }
    for record in every_state() {
        let outcome = matches!(record.state_name(), StateName::Succeeded | StateName::FailedReplayable);
        assert_eq!(expire(&record, at(u64::MAX)).is_ok(), outcome, "{record:?}");
    }
}

#[test]
fn peer_bug_purge_removes_what_is_in_progress_or_unknown() {
    for record in every_state() {
        let purged = purge(&record, Time::MAX);
        match record.state {
            State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } => {
                assert_eq!(purged, Err(Refusal::WrongState), "{record:?}");
            }
            _ => assert_eq!(purged, Ok(Unchanged::of(&record)), "{record:?}"),
        }
    }
}

#[test]
fn nothing_is_purged_before_its_tombstone_expires() {
    for record in
        [succeeded(), not_applied(Class::External), expire(&succeeded(), at(u64::MAX / 2)).unwrap().next]
    {
        let gone_at = record.gone_at().unwrap();
        let early = gone_at - Duration::from_millis(1);
        assert_eq!(purge(&record, early), Err(Refusal::NotBefore(gone_at)));
        assert!(purge(&record, gone_at).is_ok());
    }
}

/// The next attempt would have a lower fence than one that a clock ahead has given.
#[test]
fn a_record_is_kept_until_its_fence_is_in_the_past() {
    let skew = Duration::from_secs(2);
    let policy = policy(Class::External).with(|policy| policy.skew = skew).expect("valid");
    let claimed = claimed_under(policy, Begin::Processing);
    let succeeded = finish(&claimed, OWNER, Ending::Succeeded(paid()), at(2000)).unwrap().next;
    let not_applied = finish(&claimed, OWNER, Ending::NotApplied(Some(busy())), at(2000)).unwrap().next;
    let gone_at = succeeded.gone_at().unwrap();
    let fence = gone_at + Duration::from_secs(40);
    // For a node whose clock is behind, too.
    let over = fence + skew;
    let ahead = |record: Record| Record { fence: fence.as_millis(), ..record };
    for record in [ahead(succeeded.clone()), ahead(not_applied)] {
        assert_eq!(purge(&record, gone_at), Err(Refusal::NotBefore(over)));
        assert_ne!(due(&record, gone_at), Due::Purge);
        assert!(purge(&record, over).is_ok() && due(&record, over) == Due::Purge);
    }
    let tombstone = expire(&ahead(succeeded), at(gone_at.as_millis())).unwrap().next;
    assert_eq!(due(&tombstone, gone_at), Due::Extend);
    let extended = extend(&tombstone, at(gone_at.as_millis())).unwrap().next;
    assert_eq!((extended.due_at(), due(&extended, gone_at)), (Some(over), Due::Nothing));
}

#[test]
fn a_key_that_may_run_as_new_leaves_no_tombstone() {
    let policy =
        policy(Class::External).with(|policy| policy.after_expiry = AfterExpiry::RunAsNew).expect("valid");
    let record = claimed_under(policy, Begin::Processing);
    let record = finish(&record, OWNER, Ending::Succeeded(paid()), at(2000)).unwrap().next;
    assert_eq!(record.gone_at(), record.expires_at());
    assert_eq!(due(&record, record.expires_at().unwrap()), Due::Purge);
}

#[test]
fn a_record_is_due_exactly_from_its_due_moment_on() {
    let expected = |record: &Record| match record.state {
        State::Claimed { .. } | State::Processing { .. } => Due::Lapsed,
        State::Succeeded { .. } | State::FailedReplayable { .. } => Due::Expire,
        State::FailedNotReplayable { .. } | State::Expired { .. } => Due::Purge,
        State::Unknown { .. } => Due::Probe,
    };
    for record in every_state() {
        let due_at = record.due_at().expect("each of these has a due moment");
        assert_eq!(due(&record, due_at), expected(&record), "{record:?}");
        let before = due_at - Duration::from_millis(1);
        let is_unknown = record.state_name() == StateName::Unknown;
        let not_yet = if is_unknown && before < record.updated_at { Due::Redate } else { Due::Nothing };
        assert_eq!(due(&record, before), not_yet, "{record:?}");
    }
    let skewed = policy(Class::External).with(|policy| policy.skew = Duration::from_secs(2)).expect("valid");
    let record = claimed_under(skewed, Begin::Processing);
    assert_eq!(record.due_at(), Some(Time::from_millis(1000 + LEASE + 2000)));
    assert_eq!(due(&record, Time::from_millis(1000 + LEASE + 1999)), Due::Nothing);
    let gone_at = succeeded().gone_at().unwrap();
    assert_eq!(due(&succeeded(), gone_at), Due::Purge, "a late sweeper skips the tombstone");
    let left = postpone(&lapsed(Class::External), None, Time::from_millis(50_000)).unwrap().next;
    assert_eq!(due(&left, Time::MAX), Due::Nothing, "only an operator can resolve it");
}

#[test]
fn only_outcomes_are_terminal() {
    for record in every_state() {
        let terminal = matches!(
            record.state_name(),
            StateName::Succeeded | StateName::FailedReplayable | StateName::Expired
        );
        assert_eq!(record.is_terminal(), terminal);
        let outcome = terminal && record.state_name() != StateName::Expired;
        assert_eq!(record.expires_at().is_some(), outcome);
    }
}

#[test]
fn an_expired_record_is_reported_as_it_is_swept() {
    use crate::time::Trust;
    let late = [2000, 86_402_000, u64::MAX / 2].map(|millis| at(millis).now);
    for record in every_state() {
        for now in late {
            let due = due(&record, now);
            assert_eq!(is_gone(&record, now), due == Due::Purge, "{record:?} at {now:?}");
            let is_over = matches!(due, Due::Purge | Due::Expire) && record.expires_at().is_some();
            assert_eq!(is_expired(&record, now), is_over, "{record:?} at {now:?}");
            let doubted = Now { trust: Trust::Settling, ..now };
            assert!(!is_gone(&record, doubted) && !is_expired(&record, doubted), "{record:?} at {now:?}");
        }
    }
}
