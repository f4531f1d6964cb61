use super::*;
use crate::outcome::Body;
use crate::record::{State, StateName};

const BOTH: [Erasure; 2] = [Erasure::Response, Erasure::Record];

fn labelled() -> Record {
    let outcome = paid().about("customer", "ada").error_code("NONE");
    finish(&processing(Class::External), OWNER, Ending::Succeeded(outcome), at(2000)).unwrap().next
}

fn later(record: &Record, millis: u64) -> Decision<'_> {
    decide(
        Found::Record(record),
        &command(Class::External),
        new_attempt(THIRD, Begin::Processing),
        at(millis),
    )
}

#[test]
fn only_an_outcome_can_be_erased() {
    for record in every_state() {
        let expected = match record.state_name() {
            StateName::Succeeded | StateName::FailedReplayable | StateName::FailedNotReplayable => Ok(()),
            _ => Err(Refusal::WrongState),
        };
        assert_eq!(may_erase(&record), expected, "{record:?}");
        for erasure in BOTH {
            assert_eq!(erase(&record, erasure, at(3000)).map(drop), expected, "{record:?}");
        }
    }
}

#[test]
fn nothing_of_a_response_is_left_in_an_erased_record() {
    for erasure in BOTH {
        let erased = erase(&labelled(), erasure, at(3000)).unwrap().next;
        let bytes = crate::codec::encode(&Entry::Record(Box::new(erased)));
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for secret in ["paid", "/charges/7", "location", "customer", "ada", "NONE"] {
            assert!(!text.contains(secret), "{secret} after {erasure:?}: {text}");
        }
    }
    let gone = erase(&labelled(), Erasure::Record, at(3000)).unwrap().next;
    assert_ne!(gone.fingerprint, SAME, "it would confirm a guess at the payload");
}

#[test]
fn an_erased_response_leaves_state_expiry_and_payload() {
    for record in every_state().into_iter().filter(|record| may_erase(record).is_ok()) {
        let erased = erase(&record, Erasure::Response, at(3000)).unwrap().next;
        assert_eq!(erased.state_name(), record.state_name());
        assert_eq!((erased.expires_at(), erased.gone_at()), (record.expires_at(), record.gone_at()));
        assert_eq!(erased.fingerprint, record.fingerprint);
        assert_eq!(erased.due_at(), record.due_at());
    }
    let erased = erase(&succeeded(), Erasure::Response, at(3000)).unwrap().next;
    let Decision::Answer(Reply::Replay(outcome)) = later(&erased, 4000) else { panic!("a replay") };
    assert_eq!((outcome.status, &outcome.body), (paid().status, &Body::NotRetained));
    let other = command_under(policy(Class::External), &DIFFERENT);
    let mismatch = decide(Found::Record(&erased), &other, new_attempt(THIRD, Begin::Processing), at(4000));
    assert_eq!(mismatch, Decision::Answer(Reply::Mismatch));
}

#[test]
fn an_erased_record_refuses_until_its_key_would_have_been_free() {
    for record in every_state().into_iter().filter(|record| may_erase(record).is_ok()) {
        let erased = erase(&record, Erasure::Record, at(3000)).unwrap().next;
        let gone_at = record.gone_at().unwrap();
        assert_eq!(erased.state, State::Expired { until: gone_at }, "{record:?}");
        let before = gone_at.as_millis() - 1;
        assert_eq!(later(&erased, before), Decision::Answer(Reply::Expired), "{record:?}");
        assert!(matches!(later(&erased, gone_at.as_millis()), Decision::Run(_)), "{record:?}");
    }
}

#[test]
fn an_erasure_needs_a_trusted_clock_and_changes_no_deadline() {
    use crate::time::Trust;
    for (trust, is_refused) in [(Trust::Untrusted, true), (Trust::Starting, false)] {
        let now = Now { trust, ..at(u64::MAX / 2).now };
        for erasure in BOTH {
            let erased = erase(&succeeded(), erasure, Stamp::new(now, "operator", "asked to"));
            let gone_at = erased.map(|write| write.next.gone_at());
            let expected = if is_refused { Err(Refusal::ClockNotTrusted) } else { Ok(succeeded().gone_at()) };
            assert_eq!(gone_at, expected, "{trust:?}");
        }
    }
}

#[test]
fn an_erasure_is_in_the_history_with_who_and_why() {
    let stamp = Stamp::new(Time::from_millis(3000), "ada", "asked to");
    for erasure in BOTH {
        let erased = erase(&succeeded(), erasure, stamp).unwrap().next;
        let entry = erased.history.entries().last().unwrap();
        assert_eq!((&*entry.who, &*entry.why, entry.at), ("ada", "asked to", stamp.now.at));
    }
}

#[test]
fn a_late_owner_of_an_erased_record_gets_expired() {
    let own = processing(Class::External);
    let settled = resolve(&lapsed(Class::External), Verdict::Applied(None), at(1000 + LEASE)).unwrap().next;
    let erased = erase(&settled, Erasure::Record, at(2000 + LEASE)).unwrap().next;
    assert!(finish(&erased, OWNER, Ending::Succeeded(paid()), at(3000 + LEASE)).is_err());
    assert!(!outlived(&own, Found::Record(&erased)));
    assert_eq!(overtaken(&own, Found::Record(&erased)), Reply::Expired);
}
