use super::*;
use crate::chance::mixed;
use semel_core::machine::Unchanged;
use semel_core::record::{StateName, Token};
use semel_core::store::{Change, Kind};

const ID: CommandId = CommandId::from_bytes([7; 32]);
const GET: Call = Call::Get;

fn unchanged(n: u64) -> Unchanged {
    Unchanged { version: n, token: Token::from_random(n.into()), state: StateName::Processing }
}

fn value(n: u64) -> Value {
    Value::Record { unchanged: unchanged(n), digest: n }
}

fn insert(n: u64) -> Call {
    Call::Write(Change::Insert(value(n)))
}

fn replace(old: u64, next: u64) -> Call {
    Call::Write(Change::Replace(unchanged(old), value(next)))
}

fn remove(old: u64) -> Call {
    Call::Write(Change::Remove(unchanged(old)))
}

fn read(n: u64) -> Answer {
    Answer::Read(Some(value(n)))
}

fn refused(n: u64) -> Answer {
    Answer::Refused(Some(value(n)))
}

const NOTHING: Answer = Answer::Read(None);

/// A call that started and was answered at these moments.
type Line = (Call, u64, u64, Answer);
/// A call that started then and has no answer.
type Open = (Call, u64);

fn history(lines: &[Line], open: &[Open]) -> History {
    let answered = lines.iter().map(|(call, from, to, answer)| (*call, *from, Some((*to, *answer))));
    let open = open.iter().map(|(call, from)| (*call, *from, None));
    History::new(answered.chain(open).zip(0..).map(|((call, invoked_at, answer), number)| Operation {
        node: "a".into(),
        number,
        id: ID,
        call,
        invoked_at,
        answer,
    }))
}

fn accepted(lines: &[Line], open: &[Open]) {
    check(&history(lines, open), STEPS_MAX).assert_linearizable();
}

/// Asserts that the history is rejected because of the call with this number.
fn rejected(lines: &[Line], open: &[Open], offender: u64) -> Violation {
    match check(&history(lines, open), STEPS_MAX) {
        Verdict::Violation(violation) => {
            assert_eq!(violation.offender.number, offender, "{violation}");
            *violation
        }
        other => panic!("{other}"),
    }
}

#[test]
fn calls_one_after_the_other_are_explained() {
    accepted(
        &[
            (GET, 0, 1, NOTHING),
            (insert(1), 2, 3, Answer::Done),
            (insert(2), 4, 5, refused(1)),
            (replace(1, 3), 6, 7, Answer::Done),
            (replace(1, 4), 8, 9, refused(3)),
            (remove(3), 10, 11, Answer::Done),
            (GET, 12, 13, NOTHING),
            (Call::Write(Change::InsertMarker), 14, 15, Answer::Done),
            (insert(1), 16, 17, Answer::Refused(Some(Value::Marker))),
            (Call::Write(Change::RemoveMarker), 18, 19, Answer::Done),
        ],
        &[],
    );
}

#[test]
fn a_read_during_a_write_may_return_either() {
    for shown in [NOTHING, read(1)] {
        accepted(&[(insert(1), 0, 9, Answer::Done), (GET, 1, 2, shown)], &[]);
    }
    // Started at the exact moment of the answer: the order is open.
    accepted(&[(insert(1), 0, 5, Answer::Done), (GET, 5, 6, NOTHING)], &[]);
    rejected(&[(insert(1), 0, 9, Answer::Done), (GET, 1, 2, read(1)), (GET, 3, 4, NOTHING)], &[], 2);
}

#[test]
fn an_open_write_takes_effect_at_any_moment_or_never() {
    for shown in [NOTHING, read(1)] {
        accepted(&[(GET, 5, 6, shown)], &[(insert(1), 0)]);
        accepted(&[(insert(1), 0, 1, Answer::Ambiguous), (GET, 5, 6, shown)], &[]);
    }
    // Long after other calls have ended.
    accepted(
        &[
            (GET, 1, 2, NOTHING),
            (insert(2), 3, 4, Answer::Done),
            (remove(2), 5, 6, Answer::Done),
            (GET, 7, 8, read(1)),
        ],
        &[(insert(1), 0)],
    );
    rejected(&[(GET, 1, 2, read(1)), (GET, 5, 6, NOTHING)], &[(insert(1), 0)], 1);
    rejected(&[(GET, 1, 2, read(1))], &[(insert(1), 3)], 0);
}

#[test]
fn a_lost_write_is_found() {
    let violation = rejected(&[(insert(1), 0, 1, Answer::Done), (GET, 2, 3, NOTHING)], &[], 1);
    assert!(!violation.shows_the_unwritten);
    rejected(
        &[
            (insert(1), 0, 1, Answer::Done),
            (replace(1, 2), 2, 3, Answer::Done),
            (insert(3), 4, 5, refused(1)),
        ],
        &[],
        2,
    );
}

#[test]
fn a_stale_read_is_found() {
    let lines = [
        (insert(1), 0, 1, Answer::Done),
        (replace(1, 2), 2, 3, Answer::Done),
        (GET, 4, 5, read(2)),
        (GET, 6, 7, read(1)),
    ];
    rejected(&lines, &[], 3);
    accepted(&lines[..3], &[]);
}

#[test]
fn two_winners_of_one_swap_are_found() {
    rejected(&[(insert(1), 0, 5, Answer::Done), (insert(2), 1, 6, Answer::Done)], &[], 1);
    rejected(
        &[
            (insert(1), 0, 1, Answer::Done),
            (replace(1, 2), 2, 5, Answer::Done),
            (replace(1, 3), 3, 6, Answer::Done),
        ],
        &[],
        2,
    );
}

#[test]
fn an_applied_write_reported_as_refused_is_found() {
    // A retry by the driver met its own first try.
    let own = rejected(&[(insert(1), 0, 1, refused(1))], &[], 0);
    assert!(own.shows_the_unwritten, "{own}");
    // An ambiguous batch was settled by reading, and arrived afterwards.
    let late = rejected(
        &[(insert(1), 0, 1, Answer::Done), (replace(1, 2), 2, 3, refused(1)), (GET, 8, 9, read(2))],
        &[],
        1,
    );
    assert!(late.to_string().contains("refused, shows PROCESSING v1"), "{late}");
    // One that failed permanently and is stored anyway.
    let failed = [(insert(1), 0, 1, Answer::Failed(Kind::Unavailable)), (GET, 2, 3, read(1))];
    rejected(&failed, &[], 1);
}

#[test]
fn a_write_that_was_applied_twice_is_found() {
    let lines = [
        (insert(1), 0, 1, Answer::Done),
        (remove(1), 2, 3, Answer::Done),
        (GET, 4, 5, NOTHING),
        (GET, 6, 7, read(1)),
    ];
    rejected(&lines, &[], 3);
    // Its acknowledgement was lost, and it can take effect only once.
    rejected(&lines[1..], &[(insert(1), 0)], 2);
}

#[test]
fn a_value_that_was_never_written_is_found() {
    assert!(rejected(&[(GET, 0, 1, read(1))], &[], 0).shows_the_unwritten);
    rejected(&[(GET, 0, 1, Answer::Read(Some(Value::Unreadable)))], &[], 0);
    let other_bytes = Value::Record { unchanged: unchanged(1), digest: 2 };
    rejected(&[(insert(1), 0, 1, Answer::Done), (GET, 2, 3, Answer::Read(Some(other_bytes)))], &[], 1);
}

#[test]
fn an_abandoned_search_has_no_verdict() {
    let lines = [(insert(1), 0, 1, Answer::Done), (replace(1, 2), 2, 3, Answer::Done)];
    assert!(matches!(check(&history(&lines, &[]), 1), Verdict::Undecided { operations: 2, .. }));
    accepted(&lines, &[]);
}

#[test]
fn a_long_history_with_many_open_calls_is_decided() {
    // Forty calls without an answer, each of which might take effect at any moment of five hundred others.
    let open: Vec<Open> = (0..40).map(|n| (insert(10_000 + n), n)).collect();
    let mut lines: Vec<Line> = vec![(insert(1), 100, 101, Answer::Done)];
    for n in 1..500 {
        let at = 100 + 10 * n;
        lines.push((replace(n, n + 1), at, at + 3, Answer::Done));
        lines.push((GET, at + 1, at + 4, read(n)));
        lines.push((insert(1), at + 2, at + 5, refused(n + 1)));
    }
    accepted(&lines, &open);
    lines.push((GET, 100_000, 100_001, read(499)));
    let offender = u64::try_from(lines.len()).expect("small") - 1;
    rejected(&lines, &open, offender);
}

/// A pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mixed(self.0) % sides
    }

    fn call(&mut self, values: u64) -> Call {
        let (old, next) = (1 + self.roll(values), 1 + self.roll(values));
        match self.roll(4) {
            0 => GET,
            1 => insert(next),
            2 => replace(old, next),
            _ => remove(old),
        }
    }
}

/// A sequential store.
#[derive(Default)]
struct Simple(Option<u64>);

impl Simple {
    fn answer(&mut self, call: Call) -> Answer {
        let stored = self.0.map(value);
        let number = |value: Value| if let Value::Record { digest, .. } = value { digest } else { 0 };
        let Call::Write(change) = call else { return Answer::Read(stored) };
        let (is_met, next) = match change {
            Change::Insert(next) => (self.0.is_none(), Some(number(next))),
            Change::Replace(old, next) => (self.0 == Some(old.version), Some(number(next))),
            Change::Remove(old) => (self.0 == Some(old.version), None),
            Change::InsertMarker | Change::RemoveMarker => unreachable!("no markers here"),
        };
        if !is_met {
            return Answer::Refused(stored);
        }
        self.0 = next;
        Answer::Done
    }
}

/// The calls of several concurrent nodes, each of which takes effect at a moment between its start and its end. Some
/// answers are lost, and some calls with them.
fn concurrent(seed: u64, calls: usize) -> History {
    let mut dice = Dice(mixed(seed));
    let (mut store, mut operations) = (Simple::default(), Vec::new());
    // The operation of each node, and its answer as soon as it took effect.
    let mut running: Vec<Option<(usize, Option<Answer>)>> = vec![None; 5];
    for moment in 0.. {
        let node = usize::try_from(dice.roll(5)).expect("small");
        match &mut running[node] {
            None if operations.len() == calls => {
                if running.iter().all(Option::is_none) {
                    break;
                }
            }
            idle @ None => {
                *idle = Some((operations.len(), None));
                let (node, number) = (format!("n{node}").into(), moment);
                let call = dice.call(3);
                operations.push(Operation { node, number, id: ID, call, invoked_at: moment, answer: None });
            }
            Some((place, answer @ None)) => match dice.roll(10) {
                0 => running[node] = None,
                _ => *answer = Some(store.answer(operations[*place].call)),
            },
            Some((place, Some(answer))) => {
                operations[*place].answer = match dice.roll(10) {
                    0 => None,
                    1 => Some((moment, Answer::Ambiguous)),
                    _ => Some((moment, *answer)),
                };
                running[node] = None;
            }
        }
    }
    History::new(operations)
}

#[test]
fn every_concurrent_history_of_a_simple_store_is_explained() {
    for seed in 0..300 {
        let verdict = check(&concurrent(seed, 80), STEPS_MAX);
        assert!(matches!(verdict, Verdict::Linearizable { .. }), "seed {seed}: {verdict}");
    }
}

/// Tries every order, for short histories.
fn has_an_order(left: &[Operation], store: Option<u64>) -> bool {
    if left.iter().all(Operation::is_open) {
        return true;
    }
    let answered_at =
        |operation: &Operation| if operation.is_open() { None } else { operation.answer.map(|(at, _)| at) };
    (0..left.len()).any(|next| {
        let operation = &left[next];
        let comes_too_early =
            left.iter().any(|other| answered_at(other).is_some_and(|at| at < operation.invoked_at));
        let mut store = Simple(store);
        let answer = store.answer(operation.call);
        let is_same = operation.is_open() || operation.answer.is_some_and(|(_, recorded)| recorded == answer);
        let rest: Vec<_> =
            left.iter().enumerate().filter(|(at, _)| *at != next).map(|(_, other)| other.clone()).collect();
        !comes_too_early && is_same && has_an_order(&rest, store.0)
    })
}

#[test]
fn the_search_agrees_with_trying_every_order() {
    let mut bad = 0;
    for seed in 0..4_000 {
        let mut operations = concurrent(seed, 6).operations().to_vec();
        // Half of them get one answer of another call.
        let mut dice = Dice(mixed(seed ^ 1));
        let mut pick = || usize::try_from(dice.roll(6)).expect("small");
        let (from, to) = (pick(), pick());
        if let (Some((_, answer)), Some((at, _))) = (operations[from].answer, operations[to].answer)
            && operations[from].call == GET
            && operations[to].call == GET
        {
            operations[to].answer = Some((at, answer));
        } else if let Some((at, Answer::Refused(_))) = operations[to].answer {
            operations[to].answer = Some((at, Answer::Done));
        }
        let expected = has_an_order(&operations, None);
        bad += u32::from(!expected);
        let verdict = check(&History::new(operations), STEPS_MAX);
        let found = matches!(verdict, Verdict::Linearizable { .. });
        assert_eq!(found, expected, "seed {seed}: {verdict}");
    }
    assert!(bad > 300, "only {bad} of the histories were bad");
}
