use super::*;
use Meaning::{FailedReplayable, InDoubt, NotApplied, Succeeded};

fn read(class: Class, status: Status) -> Meaning {
    classify(class, &Answer::new(status), &Rules::default())
}

fn inviting(class: Class, code: u16) -> Meaning {
    let answer = Answer { retry_after: true, ..Answer::new(Status::Http(code)) };
    classify(class, &answer, &Rules::default())
}

#[test]
fn every_http_status_has_the_meaning_that_the_table_gives_it() {
    for code in 0..=999 {
        let expected = match code {
            200..=399 => Succeeded,
            401 | 403 | 408 | 425 | 429 => NotApplied,
            400..=499 => FailedReplayable,
            _ => InDoubt,
        };
        assert_eq!(read(Class::External, Status::Http(code)), expected, "{code}");
        let downstream = if code == 409 { InDoubt } else { expected };
        assert_eq!(read(Class::Downstream, Status::Http(code)), downstream, "{code}");
        let local = if expected == InDoubt { NotApplied } else { expected };
        assert_eq!(read(Class::Local, Status::Http(code)), local, "{code}");
    }
    assert_eq!(read(Class::External, Status::Value), Succeeded);
}

#[test]
fn every_grpc_status_has_the_meaning_that_the_table_gives_it() {
    for code in 0..=99 {
        let expected = match code {
            0 => Succeeded,
            3 | 5 | 6 | 9 | 12 => FailedReplayable,
            7 | 16 => NotApplied,
            _ => InDoubt,
        };
        assert_eq!(read(Class::External, Status::Grpc(code)), expected, "{code}");
    }
}

#[test]
fn an_invitation_to_retry_changes_409_and_503_only() {
    assert_eq!(inviting(Class::External, 409), InDoubt);
    assert_eq!(inviting(Class::External, 503), NotApplied);
    assert_eq!(inviting(Class::External, 500), InDoubt);
    assert_eq!(inviting(Class::External, 422), FailedReplayable);
}

#[test]
fn an_operation_can_drop_the_assumption() {
    let rules = Rules { not_applied: Vec::new(), ..Rules::default() };
    let read = |code, retry_after| {
        let answer = Answer { retry_after, ..Answer::new(Status::Http(code)) };
        classify(Class::External, &answer, &rules)
    };
    assert_eq!(read(429, true), FailedReplayable);
    assert_eq!(read(401, false), FailedReplayable);
    assert_eq!(read(503, true), InDoubt);
    assert_eq!(classify(Class::External, &Answer::new(Status::Grpc(7)), &rules), InDoubt);
}

#[test]
fn an_operation_can_promise_more() {
    let mut rules = Rules::default();
    rules.not_applied.extend([Status::Http(500), Status::Http(409), Status::Grpc(14)]);
    for status in [Status::Http(500), Status::Http(409), Status::Grpc(14)] {
        assert_eq!(classify(Class::External, &Answer::new(status), &rules), NotApplied, "{status:?}");
    }
    // "Still running" promises nothing, from any sender.
    assert_eq!(classify(Class::Downstream, &Answer::new(Status::Http(409)), &rules), InDoubt);
}

#[test]
fn no_rule_reads_a_success_as_without_effect() {
    let successes = [100, 200, 201, 204, 301, 399].map(Status::Http);
    for status in successes.into_iter().chain([Status::Grpc(0), Status::Value]) {
        let listed = Rules { not_applied: vec![Status::Http(429), status], ..Rules::default() };
        let overridden = Rules { overrides: vec![(status, NotApplied)], ..Rules::default() };
        for rules in [listed, overridden] {
            assert_eq!(rules.check(), Err(RulesError::SuccessNotApplied(status)));
        }
        let harmless = [Succeeded, FailedReplayable, InDoubt].map(|meaning| (status, meaning));
        assert_eq!(Rules { overrides: harmless.to_vec(), ..Rules::default() }.check(), Ok(()));
    }
    let errors = vec![Status::Http(400), Status::Http(599), Status::Grpc(1)];
    assert_eq!(Rules { not_applied: errors, ..Rules::default() }.check(), Ok(()));
    assert_eq!(Rules::default().check(), Ok(()));
}

#[test]
fn the_systems_own_report_outranks_status_and_overrides() {
    let rules = Rules { overrides: vec![(Status::Http(200), FailedReplayable)], ..Rules::default() };
    for (outcome_hint, meaning) in [
        (OutcomeHint::Applied, Succeeded),
        (OutcomeHint::NotApplied, NotApplied),
        (OutcomeHint::Unknown, InDoubt),
    ] {
        for code in [200, 404, 429, 500] {
            let answer = Answer { outcome_hint: Some(outcome_hint), ..Answer::new(Status::Http(code)) };
            assert_eq!(classify(Class::External, &answer, &rules), meaning, "{outcome_hint:?} {code}");
        }
    }
    assert_eq!(classify(Class::External, &Answer::new(Status::Http(200)), &rules), FailedReplayable);
    assert_eq!(classify(Class::External, &Answer::new(Status::Http(201)), &rules), Succeeded);
}

#[test]
fn without_rerun_a_response_without_effect_is_kept_as_a_refusal() {
    let rules = Rules { rerun: false, ..Rules::default() };
    let ending =
        |class, answer: Answer| Ending::of(class, &answer, &rules, Outcome::http(429, [("a", "b")], "no"));
    let kept = Ending::NotAppliedForGood(Outcome::http(429, [("a", "b")], "no"));
    assert_eq!(ending(Class::External, Answer::new(Status::Http(429))), kept);
    let steered = Answer { outcome_hint: Some(OutcomeHint::NotApplied), ..Answer::new(Status::Http(500)) };
    assert_eq!(ending(Class::External, steered), kept);
    assert_eq!(ending(Class::Local, Answer::new(Status::Http(500))), kept, "rolled back");
    assert_eq!(ending(Class::External, Answer::new(Status::Http(500))), Ending::InDoubt);
}

#[test]
fn a_local_effect_is_never_in_doubt() {
    let unsure = Answer { outcome_hint: Some(OutcomeHint::Unknown), ..Answer::new(Status::Http(200)) };
    assert_eq!(classify(Class::Local, &unsure, &Rules::default()), NotApplied);
}

#[test]
fn an_ending_carries_the_outcome_if_its_meaning_keeps_one() {
    let ending = |code| {
        let outcome = Outcome::http(code, [("a", "b")], "x");
        (
            Ending::of(Class::External, &Answer::new(outcome.status), &Rules::default(), outcome.clone()),
            outcome,
        )
    };
    let (done, outcome) = ending(200);
    assert_eq!(done, Ending::Succeeded(outcome));
    let (refused, outcome) = ending(404);
    assert_eq!(refused, Ending::FailedReplayable(outcome));
    let (busy, outcome) = ending(429);
    assert_eq!(busy, Ending::NotApplied(Some(outcome)));
    assert_eq!(ending(500).0, Ending::InDoubt);
}

#[test]
fn only_missing_permission_is_remembered_briefly() {
    for status in [Status::Http(401), Status::Http(403)] {
        assert!(denies(status), "{status:?}");
    }
    for status in [Status::Http(429), Status::Http(503), Status::Grpc(7), Status::Value] {
        assert!(!denies(status), "{status:?}");
    }
}
