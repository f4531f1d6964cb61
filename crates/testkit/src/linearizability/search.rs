//! The search for an order: Wing and Gong's algorithm, with Lowe's memory of visited positions.
//!
//! A sequential store, and the walk through the orders that real time allows. Without recursion, because a history can
//! be as long as a disk.

use crate::history::{Answer, Call, Value};
use semel_core::store::Change;
use std::collections::HashSet;

/// A call that can take effect. One without an answer may do so at any moment after its start, or never.
#[derive(Debug, Clone, Copy)]
pub(super) struct Attempt {
    pub(super) invoked_at: u64,
    pub(super) call: Call,
    pub(super) answer: Option<(u64, Answer)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Found,
    Impossible,
    GaveUp,
}

/// The stored entry.
type State = Option<Value>;

/// The stored entry after a write was applied.
pub(super) fn result(change: Change<Value>) -> State {
    match change {
        Change::Insert(next) | Change::Replace(_, next) => Some(next),
        Change::InsertMarker => Some(Value::Marker),
        Change::Remove(_) | Change::RemoveMarker => None,
    }
}

/// Whether a write is applied to the stored entry, as [`Change::is_met_by`] decides.
fn is_met(change: Change<Value>, state: State) -> bool {
    match change {
        Change::Insert(_) | Change::InsertMarker => state.is_none(),
        Change::Replace(expect, _) | Change::Remove(expect) => {
            matches!(state, Some(Value::Record { unchanged, .. }) if unchanged == expect)
        }
        Change::RemoveMarker => state == Some(Value::Marker),
    }
}

impl Attempt {
    fn only_shows(&self) -> bool {
        matches!(self.answer, Some((_, Answer::Read(_) | Answer::Refused(_))))
    }

    /// The stored entry after it took effect on `state`; `None` if that contradicts its answer.
    pub(super) fn apply(&self, state: State) -> Option<State> {
        match (self.call, self.answer.map(|(_, answer)| answer)) {
            (Call::Get, Some(Answer::Read(shown))) => (shown == state).then_some(state),
            (Call::Write(change), Some(Answer::Refused(shown))) => {
                (shown == state && !is_met(change, state)).then_some(state)
            }
            // A refused call without an answer can be ignored: it may never have arrived.
            (Call::Write(change), Some(Answer::Done) | None) => is_met(change, state).then(|| result(change)),
            _ => None,
        }
    }
}

/// The position of the search: which calls have taken effect, and what is stored.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Position {
    taken: Box<[u64]>,
    state: State,
}

impl Position {
    fn has_taken(&self, call: usize) -> bool {
        self.taken[call / 64] & (1 << (call % 64)) != 0
    }

    fn take(&mut self, call: usize, state: State) {
        self.taken[call / 64] |= 1 << (call % 64);
        self.state = state;
    }
}

/// Searches for an order that explains every answer. `attempts` are sorted by their start.
pub(super) fn explain(attempts: &[Attempt], steps_max: u64) -> Outcome {
    let start = Position { taken: vec![0; attempts.len().div_ceil(64)].into(), state: None };
    let mut seen = HashSet::new();
    let mut ahead = vec![start];
    let mut steps = 0;
    while let Some(mut position) = ahead.pop() {
        steps += 1;
        if steps > steps_max {
            return Outcome::GaveUp;
        }
        // A matching read or refusal is taken at once: an order of the rest without it is also one after it.
        let next = loop {
            let next = candidates(attempts, &position);
            match next.iter().find(|(call, _)| attempts[*call].only_shows()) {
                Some((call, state)) => position.take(*call, *state),
                None => break next,
            }
        };
        let is_taken =
            |(call, attempt): (usize, &Attempt)| attempt.answer.is_none() || position.has_taken(call);
        if attempts.iter().enumerate().all(is_taken) {
            return Outcome::Found;
        }
        if !seen.insert(position.clone()) {
            continue;
        }
        // The last is tried first: calls with an answer, which must be taken eventually.
        let (open, answered): (Vec<_>, Vec<_>) =
            next.into_iter().partition(|(call, _)| attempts[*call].answer.is_none());
        for (call, state) in open.into_iter().chain(answered) {
            let mut further = position.clone();
            further.take(call, state);
            ahead.push(further);
        }
    }
    Outcome::Impossible
}

/// The calls that can be next to take effect, and the stored entry after each: those that started before any other
/// pending call was answered.
fn candidates(attempts: &[Attempt], position: &Position) -> Vec<(usize, State)> {
    let left = || attempts.iter().enumerate().filter(|(call, _)| !position.has_taken(*call));
    let answers = left().filter_map(|(_, attempt)| attempt.answer.map(|(at, _)| at));
    let deadline = answers.min().unwrap_or(u64::MAX);
    left()
        .take_while(|(_, attempt)| attempt.invoked_at <= deadline)
        .filter_map(|(call, attempt)| Some((call, attempt.apply(position.state)?)))
        .collect()
}
