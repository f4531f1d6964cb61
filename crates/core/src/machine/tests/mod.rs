//! The state machine as a specification: each test is a promise of the manual.

mod erase;
mod judge;
mod local;
mod operator;
mod owner;
mod retention;
mod rotation;
mod rules;
mod skew;
mod trust;
mod verdict;

use super::*;
use crate::classify::Ending;
use crate::fingerprint::{Fingerprint, Payload};
use crate::id::{CallerHash, CommandId, KeyHash, OperationId};
use crate::outcome::Outcome;
use crate::policy::{Class, Policy};
use std::sync::Arc;
use std::time::Duration;

const OWNER: Token = Token::from_random(1);
const OTHER: Token = Token::from_random(2);
const THIRD: Token = Token::from_random(3);
const LEASE: u64 = 30_000;

fn policy(class: Class) -> Policy {
    Policy::new(class)
}

/// The payload that every record of these tests is bound to.
static SAME: Fingerprint = Fingerprint::from_bytes([1; 32]);
/// Another payload.
static DIFFERENT: Fingerprint = Fingerprint::from_bytes([2; 32]);

fn command_under(policy: Policy, payload: &'static Fingerprint) -> Command<'static> {
    Command {
        id: CommandId::from_bytes([9; 32]),
        operation_id: OperationId::from_bytes([3; 16]),
        key_hash: KeyHash::from_bytes([4; 32]),
        caller_hash: CallerHash::from_bytes([5; 32]),
        operation: "POST /charges".into(),
        policy: Arc::new(policy),
        fingerprint: *payload,
        payload,
        generation: 0,
    }
}

fn command(class: Class) -> Command<'static> {
    command_under(policy(class), &SAME)
}

fn at(millis: u64) -> Stamp<'static> {
    Stamp::new(Time::from_millis(millis), "worker-1", "")
}

fn new_attempt(token: Token, begin: Begin) -> NewAttempt {
    NewAttempt { token, begin }
}

/// Claimed by [`OWNER`] at the moment 1000.
fn claimed_under(policy: Policy, begin: Begin) -> Record {
    let decision = decide(Found::Nothing, &command_under(policy, &SAME), new_attempt(OWNER, begin), at(1000));
    run(decision).next
}

fn processing(class: Class) -> Record {
    claimed_under(policy(class), Begin::Processing)
}

fn claimed(class: Class) -> Record {
    claimed_under(policy(class), Begin::Claimed)
}

fn run(decision: Decision<'_>) -> Write {
    match decision {
        Decision::Run(write) => *write,
        other => panic!("expected an attempt, got {other:?}"),
    }
}

fn paid() -> Outcome {
    Outcome::http(201, [("location", "/charges/7")], "paid")
}

fn succeeded() -> Record {
    finish(&processing(Class::External), OWNER, Ending::Succeeded(paid()), at(2000)).unwrap().next
}

fn not_applied(class: Class) -> Record {
    finish(&processing(class), OWNER, Ending::NotApplied(Some(busy())), at(2000)).unwrap().next
}

fn busy() -> Outcome {
    Outcome::http(429, [("retry-after", "1")], "busy")
}

/// An `UNKNOWN` whose owner went silent.
fn lapsed(class: Class) -> Record {
    lapse(&processing(class), at(1000 + LEASE)).unwrap().next
}

/// An `UNKNOWN` whose owner did not know the outcome.
fn in_doubt(class: Class) -> Record {
    finish(&processing(class), OWNER, Ending::InDoubt, at(2000)).unwrap().next
}

/// Records in every state, and every variant of each state.
fn every_state() -> Vec<Record> {
    let mut all = vec![succeeded(), expire(&succeeded(), at(u64::MAX / 2)).unwrap().next];
    for class in [Class::Local, Class::Downstream, Class::External] {
        all.extend([claimed(class), processing(class), not_applied(class)]);
        all.push(release(&not_applied(class), at(2500)).unwrap().next);
        let refused = Ending::FailedReplayable(Outcome::http(422, [("a", "b")], "no"));
        all.push(finish(&processing(class), OWNER, refused, at(2000)).unwrap().next);
    }
    for class in [Class::Downstream, Class::External] {
        all.extend([lapsed(class), in_doubt(class)]);
        all.push(resolve(&in_doubt(class), Verdict::Refused, at(3000)).unwrap().next);
    }
    all
}

#[test]
fn a_write_needs_the_version_token_and_state_it_expects() {
    let record = processing(Class::External);
    let expect = Expect::unchanged(&record);
    assert!(expect.met_by(Found::Record(&record)));
    let renewed = renew(&record, OWNER, Time::from_millis(2000)).unwrap().next;
    assert!(!expect.met_by(Found::Record(&renewed)), "another version");
    let mut other = record.clone();
    other.token = OTHER;
    assert!(!expect.met_by(Found::Record(&other)), "another token");
    let mut other = record.clone();
    other.state = succeeded().state;
    assert!(!expect.met_by(Found::Record(&other)), "another state");
    assert!(!expect.met_by(Found::Nothing));
    assert!(!expect.met_by(Found::Moved));
    assert!(!expect.met_by(Found::Unreadable));
    assert!(Expect::Absent.met_by(Found::Nothing));
    for found in [Found::Record(&record), Found::Moved, Found::Unreadable] {
        assert!(!Expect::Absent.met_by(found), "{found:?}");
    }
}

#[test]
fn stored_entries_are_found_by_their_kind() {
    let record = processing(Class::External);
    assert_eq!(Found::from(None), Found::Nothing);
    assert_eq!(Found::from(Some(&Entry::Moved)), Found::Moved);
    let entry = Entry::Record(Box::new(record.clone()));
    assert_eq!(Found::from(Some(&entry)), Found::Record(&record));
}

#[test]
fn every_transition_adds_one_to_the_version_it_expects() {
    let now = Time::from_millis(u64::MAX / 4);
    let late = at(u64::MAX / 4);
    for record in every_state() {
        let writes = [
            start(&record, OWNER, late),
            renew(&record, OWNER, now),
            finish(&record, OWNER, Ending::Succeeded(paid()), late),
            finish(&record, OWNER, Ending::InDoubt, late),
            abandon(&record, OWNER, late),
            lapse(&record, late),
            reconcile(&record, Verdict::Refused, late),
            postpone(&record, None, now),
            resolve(&record, Verdict::Applied(None), late),
            release(&record, late),
            erase(&record, Erasure::Response, late),
            erase(&record, Erasure::Record, late),
            expire(&record, late),
            extend(&record, Stamp { now: Now { replaced_at: Some(now), ..late.now }, ..late }),
        ];
        for write in writes.into_iter().flatten() {
            assert_eq!(write.expect, Expect::unchanged(&record), "{write:?}");
            assert_eq!(write.next.version, record.version + 1, "{write:?}");
            assert_eq!(write.next.updated_at, now, "{write:?}");
            assert_eq!(write.next.token, record.token, "only a new attempt has a new token: {write:?}");
            assert_eq!(write.next.operation_id, record.operation_id);
        }
        if let Ok(planned) = plan_probe(&record, Some(now)) {
            assert_eq!(planned.expect, Expect::unchanged(&record));
            assert_eq!(planned.next.version, record.version + 1);
            assert_eq!(planned.next.updated_at, record.updated_at, "nothing has happened to the command");
        }
    }
}

#[test]
fn every_transition_but_renewal_and_postponement_is_remembered() {
    let record = processing(Class::External);
    assert_eq!(record.history.entries().len(), 1);
    let stamp = Stamp::new(Time::from_millis(1000 + LEASE), "sweeper", "the lease died");
    let unknown = lapse(&record, stamp).unwrap().next;
    let entry = &unknown.history.entries()[1];
    assert_eq!((entry.attempt, entry.to), (1, StateName::Unknown));
    assert_eq!((&*entry.who, &*entry.why, entry.at), ("sweeper", "the lease died", stamp.now.at));
    let renewed = renew(&record, OWNER, Time::from_millis(2000)).unwrap().next;
    assert_eq!(renewed.history, record.history);
    let postponed = postpone(&unknown, None, Time::from_millis(90_000)).unwrap().next;
    assert_eq!(postponed.history, unknown.history);
}

#[test]
fn a_refusal_names_its_reason() {
    let time = Time::from_millis(5);
    let all = [
        Refusal::Superseded,
        Refusal::NotStarted,
        Refusal::WrongState,
        Refusal::NotLocal,
        Refusal::Settled,
        Refusal::LeaseAlive(time),
        Refusal::QuietUntil(time),
        Refusal::InDoubt,
        Refusal::NotBefore(time),
    ];
    let texts: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), all.len(), "each has its own sentence");
    assert!(Refusal::QuietUntil(time).to_string().contains("before the quiet period is over"));
}
