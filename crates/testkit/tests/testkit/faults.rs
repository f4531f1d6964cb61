//! A store with planned faults fails exactly as planned.

use semel::Clock as _;
use semel_core::id::CommandId;
use semel_core::record::Entry;
use semel_core::store::{Change, Error, Kind, Reading, Setting, Store, Written};
use semel_testkit::faults::{
    Call, Fault, FaultRates, Faulty, Gate, LateResult, Pause, Plan, Question, Script, Seeded,
};
use semel_testkit::{FakeClock, Subject};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

const ID: CommandId = CommandId::from_bytes([7; 32]);

/// The result of a future that is ready: nothing here waits for anything but the test.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("it waits"),
    }
}

fn faulty(plan: impl Plan) -> Faulty {
    Faulty::new(Subject::memory().store().clone(), plan)
}

fn scripted(fault: Fault) -> Faulty {
    faulty(Script::of(Question::Insert, [fault]))
}

fn plant(store: &Faulty) -> Result<Written, Error> {
    now(store.write(ID, Change::InsertMarker))
}

fn is_stored(store: &Faulty) -> bool {
    let Reading { entry, .. } = now(store.get(ID)).expect("readings pass");
    entry == Some(Ok(Entry::Moved))
}

fn kind(answer: Result<Written, Error>) -> Kind {
    answer.expect_err("the script makes it fail").kind()
}

#[test]
fn a_failure_before_the_write_is_reported_as_nothing_written() {
    let store = scripted(Fault::FailBefore);
    assert_eq!(kind(plant(&store)), Kind::Unavailable);
    assert!(!is_stored(&store));
    assert!(matches!(plant(&store), Ok(Written::Done { .. })), "the script has one line");
}

#[test]
fn a_failure_after_the_write_is_ambiguous() {
    let store = scripted(Fault::FailAfter);
    assert_eq!(kind(plant(&store)), Kind::Ambiguous);
    assert!(is_stored(&store));
}

#[test]
fn a_late_write_arrives_when_the_test_delivers_it() {
    let store = scripted(Fault::Late);
    assert_eq!(kind(plant(&store)), Kind::Ambiguous);
    assert!(!is_stored(&store));
    assert_eq!(store.in_flight(), 1);
    let late = now(store.deliver()).expect("one is in flight").expect("an answer");
    assert!(matches!(late, LateResult::Entry(Written::Done { .. })));
    assert!(is_stored(&store));
    assert!(now(store.deliver()).is_none());
}

#[test]
fn a_write_delivered_twice_is_answered_once() {
    let store = scripted(Fault::Twice);
    assert!(matches!(plant(&store), Ok(Written::Done { .. })));
    assert!(matches!(now(store.write(ID, Change::RemoveMarker)).expect("an answer"), Written::Done { .. }));
    assert!(!is_stored(&store));
    now(store.deliver()).expect("the second copy").expect("an answer");
    assert!(is_stored(&store), "the second copy of an insert puts a removed marker back");
}

#[test]
fn a_late_setting_is_compared_when_it_arrives() {
    let store = faulty(Script::of(Question::Set, [Fault::Late]));
    assert!(now(store.set("a", None, Some(b"late"))).is_err());
    assert_eq!(now(store.set("a", None, Some(b"soon"))).expect("an answer"), Setting::Done);
    let late = now(store.deliver()).expect("one is in flight").expect("an answer");
    assert_eq!(late, LateResult::Setting(Setting::Refused(Some("soon".into()))));
}

#[test]
fn a_delayed_write_happens_when_the_gate_opens() {
    let gate = Gate::new();
    let store = scripted(Fault::DelayBefore(gate.pause()));
    let mut write = store.write(ID, Change::InsertMarker);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(write.as_mut().poll(context).is_pending() && gate.is_waited_for());
    assert!(!is_stored(&store), "it has not reached the store");
    gate.open();
    assert!(write.as_mut().poll(context).is_ready());
    assert!(is_stored(&store));
}

#[test]
fn a_delayed_answer_arrives_after_the_write_by_the_clock() {
    let clock = FakeClock::default();
    let store = scripted(Fault::DelayAfter(Pause::until(clock.sleep(Duration::from_secs(5)))));
    let mut write = store.write(ID, Change::InsertMarker);
    let context = &mut Context::from_waker(Waker::noop());
    assert!(write.as_mut().poll(context).is_pending());
    assert!(is_stored(&store), "it has reached the store");
    clock.advance(Duration::from_secs(5));
    assert!(write.as_mut().poll(context).is_ready());
}

#[test]
fn a_failed_read_leaves_nothing_open() {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::Late] {
        let store = faulty(Script::new([fault]));
        assert_eq!(now(store.get(ID)).expect_err("the script makes it fail").kind(), Kind::Unavailable);
        assert_eq!(store.in_flight(), 0);
    }
}

#[test]
fn equal_seeds_act_equally_and_keep_the_odds() {
    let odds = FaultRates { fail_before: 100, fail_after: 200, late: 50, twice: 0 };
    let run = |seed| -> Vec<String> {
        let plan = Seeded::new(seed, odds);
        let call = |number| Call { number, question: Question::Swap, id: None };
        (0..10_000).map(|number| format!("{:?}", plan.fate(&call(number)))).collect()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    for (fault, expected) in [("FailBefore", 1_000), ("FailAfter", 2_000), ("Late", 500), ("Twice", 0)] {
        let struck = run(3).iter().filter(|fate| *fate == fault).count();
        assert!(struck.abs_diff(expected) <= expected / 5, "{fault} happened {struck} times of 10,000");
    }
}

#[test]
fn a_plan_sees_every_call_with_its_number_and_subject() {
    let store = faulty(|call: &Call| {
        assert_eq!(call.id, Some(ID));
        if call.number == 1 && call.question == Question::Insert { Fault::FailBefore } else { Fault::Pass }
    });
    assert!(!is_stored(&store));
    assert_eq!(kind(plant(&store)), Kind::Unavailable);
    assert!(plant(&store).is_ok());
    assert_eq!(store.calls(), 3);
}
