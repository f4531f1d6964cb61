//! Checks histories for linearizability.
//!
//! Each ID is checked separately. A history never counts as good because the search was aborted.
//!
//! Promise 2 of a [store](semel_core::store) is linearizability: there is an order of all calls on an ID in which
//! each takes effect at one moment between its beginning and its end, and in which a sequential store would have
//! given the same answers. Calls without an end may take effect at any moment after their beginning, or never.

mod search;
#[cfg(test)]
mod tests;

use crate::history::{Answer, Call, History, Operation, Value};
use search::{Attempt, Outcome};
use semel_core::id::CommandId;
use std::collections::BTreeSet;
use std::fmt;

/// Enough steps for a thousand calls on one ID, a dozen of them concurrent.
pub const STEPS_MAX: u64 = 1_000_000;

/// How many calls a [`Violation`] shows, besides the one that cannot be explained.
const SHOWN_MAX: usize = 16;

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a history without this verdict may be bad"]
pub enum Verdict {
    /// Every answer can be explained.
    Linearizable {
        /// How many ids the history is about.
        ids: usize,
        /// How many calls it has.
        operations: usize,
    },
    /// No order explains one of the answers.
    Violation(Box<Violation>),
    /// The search for an order was aborted.
    Undecided {
        /// The ID.
        id: CommandId,
        /// The number of its calls.
        operations: usize,
    },
}

impl Verdict {
    /// Panics with the verdict's text unless the history is good.
    #[track_caller]
    pub fn assert_linearizable(&self) {
        assert!(matches!(self, Self::Linearizable { .. }), "{self}");
    }
}

/// An answer that no order of the calls before it explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The ID of the calls.
    pub id: CommandId,
    /// The first call, by the moment of its answer, that cannot be explained.
    pub offender: Operation,
    /// Whether it shows an entry that was never written before.
    pub shows_the_unwritten: bool,
    /// The last calls that had begun before, without the offender.
    pub before: Vec<Operation>,
    /// How many more there were.
    pub before_unshown: usize,
}

/// Checks the calls on each ID, starting from an empty store, with up to `steps_max` steps per ID ([`STEPS_MAX`] is
/// enough for most).
pub fn check(history: &History, steps_max: u64) -> Verdict {
    let by_id = history.by_id();
    let mut undecided = None;
    for (id, operations) in &by_id {
        match search::explain(&attempts(operations, u64::MAX), steps_max) {
            Outcome::Found => {}
            Outcome::GaveUp => {
                undecided.get_or_insert(Verdict::Undecided { id: *id, operations: operations.len() });
            }
            Outcome::Impossible => {
                return Verdict::Violation(Box::new(locate(*id, operations, steps_max)));
            }
        }
    }
    let all = Verdict::Linearizable { ids: by_id.len(), operations: history.operations().len() };
    undecided.unwrap_or(all)
}

/// The calls as input of the search, as known at the moment `until`: later answers are open.
fn attempts(operations: &[&Operation], until: u64) -> Vec<Attempt> {
    let started = operations.iter().filter(|operation| operation.invoked_at <= until);
    let known = started.filter_map(|operation| {
        let answer = operation.answer.filter(|(at, _)| *at <= until);
        match (operation.call, answer) {
            // It wrote nothing and returned nothing.
            (_, Some((_, Answer::Failed(_)))) | (Call::Get, None | Some((_, Answer::Ambiguous))) => None,
            (call, None | Some((_, Answer::Ambiguous))) => {
                Some(Attempt { invoked_at: operation.invoked_at, call, answer: None })
            }
            (call, Some(answer)) => {
                Some(Attempt { invoked_at: operation.invoked_at, call, answer: Some(answer) })
            }
        }
    });
    let mut known: Vec<_> = known.collect();
    known.sort_by_key(|attempt| attempt.invoked_at);
    known
}

/// The first answer after which no order explains the known answers. If a moment can be explained, so can every earlier
/// one, so binary search finds the first.
fn locate(id: CommandId, operations: &[&Operation], steps_max: u64) -> Violation {
    let moments: BTreeSet<u64> =
        operations.iter().filter_map(|operation| operation.answer.map(|(at, _)| at)).collect();
    let moments: Vec<u64> = moments.into_iter().collect();
    let is_fine =
        |moment: &u64| search::explain(&attempts(operations, *moment), steps_max) != Outcome::Impossible;
    let first = moments.partition_point(is_fine).min(moments.len() - 1);
    let moment = moments[first];
    let answered = |operation: &&&Operation| operation.answer.is_some_and(|(at, _)| at == moment);
    let offender = operations.iter().find(answered).expect("there was an answer then");
    let mut before: Vec<Operation> = operations
        .iter()
        .filter(|operation| operation.invoked_at <= moment && *operation != offender)
        .map(|operation| Operation::clone(operation))
        .collect();
    before.sort_by_key(|operation| (operation.answer.map_or(u64::MAX, |(at, _)| at), operation.invoked_at));
    let before_unshown = before.len().saturating_sub(SHOWN_MAX);
    before.drain(..before_unshown);
    Violation {
        id,
        offender: Operation::clone(offender),
        shows_the_unwritten: shows_the_unwritten(offender, operations, moment),
        before,
        before_unshown,
    }
}

fn shows_the_unwritten(offender: &Operation, operations: &[&Operation], moment: u64) -> bool {
    let Some((_, Answer::Refused(Some(shown)) | Answer::Read(Some(shown)))) = offender.answer else {
        return false;
    };
    let writes = |operation: &&Operation| {
        operation.invoked_at <= moment
            && matches!(operation.call, Call::Write(change) if search::result(change) == Some(shown))
            // A call that reports that it was not applied did not write it.
            && (operation.is_open() || matches!(operation.answer, Some((_, Answer::Done))))
    };
    shown != Value::Unreadable && !operations.iter().any(writes)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Linearizable { ids, operations } => {
                write!(f, "linearizable: {operations} calls about {ids} ids")
            }
            Self::Violation(violation) => violation.fmt(f),
            Self::Undecided { id, operations } => write!(
                f,
                "undecided: {operations} calls about {} are too many; allow more steps",
                id.prefix()
            ),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.shows_the_unwritten {
            "it shows an entry that no applied or open write has stored"
        } else {
            "no order of the calls explains it"
        };
        writeln!(f, "not linearizable, id {}: {why}:", self.id.prefix())?;
        writeln!(f, "  {}", self.offender)?;
        writeln!(f, "the calls that had started by then, by their answers:")?;
        if self.before_unshown > 0 {
            writeln!(f, "  ({} earlier ones)", self.before_unshown)?;
        }
        self.before.iter().try_for_each(|operation| writeln!(f, "  {operation}"))
    }
}
