//! The rules for every write: each stops a record that breaks it, and none stops a legal one.

use super::super::rules::{Rule, broken_rule, swap};
use super::*;
use crate::record::{Proof, State, StateName};

/// The stored record, a legal successor, and a change that breaks it.
fn rule_broken_by(old: &Record, next: &Record, spoil: impl FnOnce(&mut Record)) -> Option<Rule> {
    assert_eq!(broken_rule(old, next), None, "legal before the change");
    let mut next = next.clone();
    spoil(&mut next);
    let broken = broken_rule(old, &next);
    assert_eq!(swap(old, next).err(), broken.map(Refusal::Inconsistent), "nothing is stored");
    broken
}

fn renewed(record: &Record) -> Record {
    renew(record, OWNER, Time::from_millis(1500)).unwrap().next
}

/// The attempt of [`OTHER`] that follows `old`.
fn followed(old: &Record) -> Record {
    let new_attempt = new_attempt(OTHER, Begin::Claimed);
    run(decide(Found::Record(old), &command(old.policy.class), new_attempt, at(1000 + LEASE))).next
}

fn with_doubt(mut record: Record) -> Record {
    record.earlier_doubt = true;
    record
}

#[test]
fn a_version_that_does_not_grow_by_one_is_not_stored() {
    let (old, rule) = (processing(Class::External), Some(Rule::VersionGrowsByOne));
    assert_eq!(rule_broken_by(&old, &renewed(&old), |next| next.version = old.version), rule);
    assert_eq!(rule_broken_by(&old, &renewed(&old), |next| next.version += 1), rule);
    let mut last = old.clone();
    last.version = u64::MAX;
    let mut next = renewed(&old);
    next.version = 0;
    assert_eq!(broken_rule(&last, &next), rule, "a version that occurred before");
}

#[test]
fn a_new_attempt_without_a_new_token_is_not_stored() {
    let (old, rule) = (not_applied(Class::External), Some(Rule::TokenNamesAttempt));
    assert_eq!(rule_broken_by(&old, &followed(&old), |next| next.token = old.token), rule);
    let running = processing(Class::External);
    assert_eq!(rule_broken_by(&running, &renewed(&running), |next| next.attempt += 1), rule);
    assert_eq!(rule_broken_by(&running, &renewed(&running), |next| next.fence += 1), rule);
}

#[test]
fn a_new_token_without_a_new_attempt_is_not_stored() {
    let (old, rule) = (processing(Class::External), Some(Rule::TokenNamesAttempt));
    assert_eq!(rule_broken_by(&old, &renewed(&old), |next| next.token = OTHER), rule);
    let refused = not_applied(Class::External);
    assert_eq!(rule_broken_by(&refused, &followed(&refused), |next| next.attempt = 5), rule);
    assert_eq!(rule_broken_by(&refused, &followed(&refused), |next| next.fence = refused.fence), rule);
    assert_eq!(rule_broken_by(&refused, &followed(&refused), |next| next.state = succeeded().state), rule);
    let unknown = lapsed(Class::Downstream);
    assert_eq!(
        rule_broken_by(&unknown, &followed(&unknown), |next| next.attempt = 1),
        rule,
        "an unknown record is not reused"
    );
}

#[test]
fn a_reused_token_runs_nothing_and_raises_an_alarm() {
    let old = not_applied(Class::External);
    let reused = decide(
        Found::Record(&old),
        &command(Class::External),
        new_attempt(OWNER, Begin::Processing),
        at(3000),
    );
    assert_eq!(reused, Decision::Answer(Reply::Unreadable));
}

#[test]
fn a_doubt_that_an_owner_forgets_is_not_stored() {
    let rule = Some(Rule::DoubtIsKept);
    let forget = |next: &mut Record| next.earlier_doubt = false;
    let claim = with_doubt(claimed(Class::Downstream));
    let started = start(&claim, OWNER, at(2000)).unwrap().next;
    assert_eq!(rule_broken_by(&claim, &started, forget), rule, "a doubt lost by a start");
    assert_eq!(
        rule_broken_by(&claim, &renewed(&claim), forget),
        rule,
        "a doubt lost by a renewal of a claim"
    );
    assert_eq!(rule_broken_by(&started, &renewed(&started), forget), rule, "a doubt lost by a renewal");
    let lapsed = lapse(&started, at(2000 + LEASE)).unwrap().next;
    assert_eq!(rule_broken_by(&started, &lapsed, forget), rule, "a doubt lost by a sweeper");
    let postponed = postpone(&lapsed, None, Time::from_millis(90_000)).unwrap().next;
    assert_eq!(rule_broken_by(&lapsed, &postponed, forget), rule, "a doubt lost by a reconciler");
}

#[test]
fn a_doubt_that_a_new_attempt_forgets_is_not_stored() {
    let rule = Some(Rule::DoubtIsKept);
    let inherited = with_doubt(claimed(Class::Downstream));
    for old in
        [processing(Class::Downstream), lapsed(Class::Downstream), in_doubt(Class::Downstream), inherited]
    {
        assert_eq!(rule_broken_by(&old, &followed(&old), |next| next.earlier_doubt = false), rule, "{old:?}");
    }
    let local = followed(&processing(Class::Local));
    assert!(!local.earlier_doubt, "a transaction that is gone has had no effect");
}

#[test]
fn nothing_took_effect_is_not_stored_over_a_doubt() {
    let rule = Some(Rule::DoubtIsKept);
    let not_applied = |proof| {
        let expires_at = Time::from_millis(90_000);
        State::FailedNotReplayable { outcome: None, proof, bound: true, expires_at }
    };
    let running = with_doubt(processing(Class::Downstream));
    let ended = finish(&running, OWNER, Ending::NotApplied(None), at(2000)).unwrap().next;
    assert_eq!(ended.state_name(), StateName::Unknown);
    for proof in [Proof::Owner, Proof::NeverBegan] {
        let settle = |next: &mut Record| {
            next.state = not_applied(proof);
            next.earlier_doubt = false;
        };
        assert_eq!(rule_broken_by(&running, &ended, settle), rule, "{proof:?} speaks for one attempt only");
        assert_eq!(
            rule_broken_by(&ended, &postpone(&ended, None, at(3000).now.at).unwrap().next, settle),
            rule,
            "{proof:?}"
        );
    }
    for old in [processing(Class::External), lapsed(Class::External)] {
        let settled = finish(&old, OWNER, Ending::NotApplied(None), at(50_000)).unwrap().next;
        let begun = |next: &mut Record| next.state = not_applied(Proof::NeverBegan);
        assert_eq!(rule_broken_by(&old, &settled, begun), rule, "it had started: {old:?}");
    }
}

#[test]
fn an_unknown_is_not_stored_as_running_or_gone() {
    let (old, rule) = (lapsed(Class::External), Some(Rule::DoubtIsKept));
    let postponed = postpone(&old, None, Time::from_millis(50_000)).unwrap().next;
    let time = Time::from_millis(90_000);
    for state in [
        State::Claimed { lease_until: time },
        State::Processing { lease_until: time },
        State::Expired { until: time },
    ] {
        assert_eq!(rule_broken_by(&old, &postponed, |next| next.state = state), rule);
    }
    let running = processing(Class::External);
    let claim = State::Claimed { lease_until: time };
    assert_eq!(
        rule_broken_by(&running, &renewed(&running), |next| next.state = claim),
        rule,
        "it may have started"
    );
}

#[test]
fn a_final_outcome_that_becomes_anything_else_is_not_stored() {
    let old = succeeded();
    let tombstone = expire(&old, at(u64::MAX / 2)).unwrap().next;
    for state in
        [processing(Class::External).state, lapsed(Class::External).state, not_applied(Class::External).state]
    {
        assert_eq!(
            rule_broken_by(&old, &tombstone, |next| next.state = state.clone()),
            Some(Rule::FinalStaysFinal)
        );
    }
}

#[test]
fn a_tombstone_that_ends_earlier_is_not_stored() {
    let tombstone =
        expire(&succeeded(), Stamp::new(succeeded().expires_at().unwrap(), "sweeper", "")).unwrap().next;
    let until = tombstone.gone_at().unwrap();
    let replaced = Now { replaced_at: Some(until), ..until.into() };
    let extended = extend(&tombstone, Stamp::new(replaced, "sweeper", "")).unwrap().next;
    let shorten = |next: &mut Record| next.state = State::Expired { until: until - Duration::from_millis(1) };
    assert_eq!(rule_broken_by(&tombstone, &extended, shorten), Some(Rule::TombstoneIsKept));
}

#[test]
fn no_legal_transition_breaks_a_rule() {
    let late = at(u64::MAX / 4);
    let doubtful =
        every_state().into_iter().filter(|record| record.policy.class == Class::Downstream).map(with_doubt);
    let open = |record: &Record| !record.is_terminal() && record.gone_at().is_none();
    for record in every_state().into_iter().chain(doubtful.filter(open)) {
        let endings = [
            Ending::Succeeded(paid()),
            Ending::FailedReplayable(busy()),
            Ending::NotApplied(Some(busy())),
            Ending::NotAppliedForGood(busy()),
            Ending::InDoubt,
        ];
        let verdicts = [
            Verdict::Applied(None),
            Verdict::Failed(busy()),
            Verdict::NotApplied { asked_at: late.now.at },
            Verdict::Refused,
        ];
        let mut results = vec![
            start(&record, OWNER, late),
            renew(&record, OWNER, late.now),
            abandon(&record, OWNER, late),
            lapse(&record, late),
            postpone(&record, None, late.now.at),
            release(&record, late),
            expire(&record, late),
            extend(&record, Stamp { now: Now { replaced_at: Some(late.now.at), ..late.now }, ..late }),
        ];
        results.extend(endings.map(|ending| finish(&record, OWNER, ending, late)));
        results.extend(verdicts.clone().map(|verdict| reconcile(&record, verdict, late)));
        results.extend(verdicts.map(|verdict| resolve(&record, verdict, late)));
        for result in results {
            assert!(!matches!(result, Err(Refusal::Inconsistent(_))), "{result:?} of {record:?}");
        }
        for now in [1500, 1000 + LEASE, u64::MAX / 4] {
            let command = command_under(Policy::clone(&record.policy), &SAME);
            let decision =
                decide(Found::Record(&record), &command, new_attempt(OTHER, Begin::Processing), at(now));
            assert_ne!(decision, Decision::Answer(Reply::Unreadable), "{record:?}");
        }
    }
}

#[test]
fn each_rule_has_its_own_text() {
    let rules = [
        Rule::VersionGrowsByOne,
        Rule::TokenNamesAttempt,
        Rule::DoubtIsKept,
        Rule::FinalStaysFinal,
        Rule::TombstoneIsKept,
    ];
    let texts: std::collections::BTreeSet<String> =
        rules.iter().map(|rule| Refusal::Inconsistent(*rule).to_string()).collect();
    assert_eq!(texts.len(), rules.len(), "each has its own sentence");
    assert!(texts.iter().all(|sentence| sentence.contains("nothing was written")));
}
