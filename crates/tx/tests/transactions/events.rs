//! The events of an engine, and its answers.

use semel::core::classify::Ending;
use semel::core::id::OperationId;
use semel::core::outcome::{Body, Outcome};
use semel::{Event, ExecuteResponse, Observer, RecordedOutcome, RefusalReason, RequestOutcome};
use semel_tx::Error;
use std::sync::{Arc, Mutex};

/// An answer with an outcome, of `transact` or of an engine.
pub(crate) trait Answered: std::fmt::Debug {
    fn operation_id(&self) -> OperationId;
    /// Whether this call ran the command.
    fn has_run(&self) -> bool;
    fn outcome(&self) -> &Outcome;
}

impl Answered for RecordedOutcome {
    fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    fn has_run(&self) -> bool {
        !self.replayed
    }

    fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

impl<L: std::fmt::Debug> Answered for ExecuteResponse<L> {
    fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    fn has_run(&self) -> bool {
        matches!(self.outcome, RequestOutcome::Ran(_))
    }

    fn outcome(&self) -> &Outcome {
        match &self.outcome {
            RequestOutcome::Ran(ran) => match &ran.ending {
                Ending::Succeeded(outcome) | Ending::FailedReplayable(outcome) => outcome,
                other => panic!("{other:?}"),
            },
            RequestOutcome::Replayed(replayed) => &replayed.outcome,
            _ => panic!("no outcome: {self:?}"),
        }
    }
}

/// Whether this call ran the command.
pub(crate) fn ran(answer: &impl Answered) -> bool {
    answer.has_run()
}

/// The body of the outcome in an answer.
pub(crate) fn body(answer: &impl Answered) -> String {
    match &answer.outcome().body {
        Body::Kept(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => panic!("{other:?}"),
    }
}

/// Why a call has no success.
pub(crate) fn refused(answer: Result<RecordedOutcome, Error>) -> RefusalReason {
    match answer {
        Err(Error::Refused(refusal)) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

/// The outcome of a command that its work refused.
pub(crate) fn failed(answer: Result<RecordedOutcome, Error>) -> RecordedOutcome {
    match refused(answer) {
        RefusalReason::Failed(recorded) => *recorded,
        other => panic!("{other:?}"),
    }
}

/// The events that an engine has reported, except for its calls to the store.
#[derive(Clone, Default)]
pub(crate) struct Events(Arc<Mutex<Vec<String>>>);

impl Events {
    pub(crate) fn of(&self, name: &str) -> usize {
        self.0.lock().expect("whole").iter().filter(|event| event.starts_with(name)).count()
    }
}

impl Observer for Events {
    fn observe(&self, event: &Event<'_>) {
        let text = format!("{event:?}");
        if !text.starts_with("Asked") {
            self.0.lock().expect("whole").push(text);
        }
    }
}
