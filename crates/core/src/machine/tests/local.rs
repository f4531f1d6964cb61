//! Class `local`: one write for claim, effect and outcome.

use super::*;
use crate::store::Filter;

fn claim(found: Found<'_>, token: Token, stamp: Stamp<'_>) -> Write {
    run(decide(found, &command(Class::Local), new_attempt(token, Begin::Processing), stamp))
}

fn committed(claim: &Write, stamp: Stamp<'_>) -> Record {
    commit_local(claim, LocalEnding::Succeeded(paid()), stamp).unwrap().next
}

#[test]
fn the_first_write_of_a_local_command_is_its_outcome() {
    let claim = claim(Found::Nothing, OWNER, at(1000));
    let refused = Outcome::http(422, [("a", "b")], "no");
    let endings = [
        (LocalEnding::Succeeded(paid()), StateName::Succeeded),
        (LocalEnding::Refused(refused), StateName::FailedReplayable),
    ];
    for (ending, state) in endings {
        let write = commit_local(&claim, ending, at(2000)).unwrap();
        assert_eq!(write.expect, Expect::Absent);
        let record = write.next;
        assert_eq!((record.version, record.attempt, record.state_name()), (1, 1, state));
        assert_eq!((record.token, record.fence), (OWNER, 1000));
        assert_eq!(record.created_at, Time::from_millis(1000));
        let ended = Time::from_millis(2000);
        assert_eq!((record.updated_at, record.owner_wrote_at), (ended, ended));
        assert_eq!(record.expires_at(), Some(ended + record.policy.ttl));
    }
}

#[test]
fn the_history_shows_one_write_and_no_claim() {
    let record = committed(&claim(Found::Nothing, OWNER, at(1000)), at(2000));
    let entries: Vec<_> = record.history.entries().iter().map(|entry| (entry.to, entry.at)).collect();
    assert_eq!(entries, [(StateName::Succeeded, Time::from_millis(2000))]);
    assert_eq!(record.history.dropped(), 0);
}

#[test]
fn a_local_commit_replaces_exactly_the_record_that_was_read() {
    // Records of an attempt without effect, or of a version that stored claims.
    let left = [not_applied(Class::Local), processing(Class::Local), claimed(Class::Local)];
    for old in left {
        let claim = claim(Found::Record(&old), OTHER, at(1000 + LEASE));
        let write = commit_local(&claim, LocalEnding::Succeeded(paid()), at(2000 + LEASE)).unwrap();
        assert_eq!(write.expect, Expect::unchanged(&old));
        assert_eq!((write.next.version, write.next.attempt), (old.version + 1, 2));
        assert!(write.next.fence > old.fence && write.next.token != old.token);
        assert!(!write.next.earlier_doubt);
    }
}

#[test]
fn a_record_of_another_class_is_not_ended_in_a_transaction() {
    for class in [Class::External, Class::Downstream] {
        let old = not_applied(class);
        let claim = claim(Found::Record(&old), OTHER, at(3000));
        let ended = commit_local(&claim, LocalEnding::Succeeded(paid()), at(4000));
        assert_eq!(ended, Err(Refusal::NotLocal), "{class}");
    }
}

#[test]
fn a_record_without_a_claim_is_not_ended_again() {
    let claim = claim(Found::Nothing, OWNER, at(1000));
    let ended = commit_local(&claim, LocalEnding::Succeeded(paid()), at(2000)).unwrap();
    let again = commit_local(&ended, LocalEnding::Succeeded(paid()), at(2000));
    assert_eq!(again, Err(Refusal::WrongState));
}

#[test]
fn an_untrusted_clock_dates_no_local_outcome() {
    let claim = claim(Found::Nothing, OWNER, at(1000));
    let mut stamp = at(2000);
    stamp.now.trust = crate::time::Trust::Untrusted;
    assert_eq!(commit_local(&claim, LocalEnding::Succeeded(paid()), stamp), Err(Refusal::ClockNotTrusted));
}

#[test]
fn a_committed_local_outcome_is_replayed_and_binds_its_payload() {
    let record = committed(&claim(Found::Nothing, OWNER, at(1000)), at(2000));
    let same = decide(
        Found::Record(&record),
        &command(Class::Local),
        new_attempt(OTHER, Begin::Processing),
        at(3000),
    );
    assert_eq!(same, Decision::Answer(Reply::Replay(&paid())));
    let other = command_under(policy(Class::Local), &DIFFERENT);
    let other = decide(Found::Record(&record), &other, new_attempt(OTHER, Begin::Processing), at(3000));
    assert_eq!(other, Decision::Answer(Reply::Mismatch));
}

#[test]
fn labels_are_stored_only_with_the_final_outcome() {
    let labelled = || paid().about("order", "7").error_code("NONE");
    let claim = claim(Found::Nothing, OWNER, at(1000));
    let record = commit_local(&claim, LocalEnding::Succeeded(labelled()), at(2000)).unwrap().next;
    assert_eq!(record.labels, labelled().labels);
    assert!(
        matches!(&record.state, State::Succeeded { outcome, .. } if *outcome == paid()),
        "replayed without"
    );
    let filter =
        Filter { resource_type: Some("order".into()), resource_id: Some("7".into()), ..Filter::default() };
    assert!(filter.wants(&record));
    assert!(!Filter { resource_id: Some("8".into()), ..filter.clone() }.wants(&record));
    assert!(!Filter { error_code: Some("OTHER".into()), ..Filter::default() }.wants(&record));
    assert!(!filter.wants(&committed(&claim, at(2000))), "a record without labels");
    // An attempt without effect may be retried, and its labels would belong to the next attempt.
    let ending = Ending::NotApplied(Some(labelled()));
    let failed = finish(&processing(Class::External), OWNER, ending, at(2000)).unwrap().next;
    assert!(failed.labels.is_empty());
    assert!(
        matches!(&failed.state, State::FailedNotReplayable { outcome: Some(outcome), .. } if outcome.labels.is_empty())
    );
}

/// A commit at 2000 over the entry `old`.
fn commit(old: Found<'_>) -> Write {
    commit_local(&claim(old, OTHER, at(1000 + LEASE)), LocalEnding::Succeeded(paid()), at(2000 + LEASE))
        .unwrap()
}

#[test]
fn an_uncertain_commit_is_proven_by_its_token() {
    let write = commit(Found::Nothing);
    let erased = erase(&write.next, Erasure::Response, at(3000 + LEASE)).unwrap().next;
    for found in [&write.next, &erased] {
        assert_eq!(
            local_write_result(&write, Found::Record(found), at(4000 + LEASE).now),
            WriteResult::Applied
        );
    }
    assert_eq!(local_write_result(&write, Found::Unreadable, at(4000 + LEASE).now), WriteResult::Unclear);
}

#[test]
fn another_entry_disproves_a_commit_only_while_its_record_is_kept() {
    let old = not_applied(Class::Local);
    let others = committed(&claim(Found::Nothing, OWNER, at(1000)), at(2000));
    for write in [commit(Found::Nothing), commit(Found::Record(&old))] {
        let gone_at = write.next.gone_at().unwrap();
        let within = Stamp { now: (gone_at - Duration::from_millis(1)).into(), ..at(0) }.now;
        for found in [Found::Nothing, Found::Moved, Found::Record(&others)] {
            assert_eq!(local_write_result(&write, found, within), WriteResult::NotApplied, "{found:?}");
            assert_eq!(local_write_result(&write, found, gone_at), WriteResult::Unclear, "{found:?}");
            let skewed = Now { skew: Duration::from_millis(1), ..within };
            assert_eq!(
                local_write_result(&write, found, skewed),
                WriteResult::Unclear,
                "by another node's clock: {found:?}"
            );
            let untrusted = Now { trust: crate::time::Trust::Untrusted, ..within };
            assert_eq!(local_write_result(&write, found, untrusted), WriteResult::Unclear, "{found:?}");
        }
    }
}

#[test]
fn the_record_that_a_commit_would_replace_disproves_it_at_any_time() {
    let old = not_applied(Class::Local);
    let write = commit(Found::Record(&old));
    let late = write.next.gone_at().unwrap() + Duration::from_secs(1);
    assert_eq!(local_write_result(&write, Found::Record(&old), late), WriteResult::NotApplied);
}
