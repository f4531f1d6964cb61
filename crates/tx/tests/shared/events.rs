//! The events of an engine, and its answers.

use semel::core::classify::Ending;
use semel::core::outcome::Body;
use semel::{Answer, Event, Observer, RequestOutcome};
use std::sync::{Arc, Mutex};

/// Whether this call ran the command.
pub(crate) fn ran(answer: &Answer) -> bool {
    matches!(answer.outcome, RequestOutcome::Ran(_))
}

/// The body of the outcome in an answer.
pub(crate) fn body(answer: &Answer) -> String {
    let outcome = match &answer.outcome {
        RequestOutcome::Ran(ran) => match &ran.ending {
            Ending::Succeeded(outcome) | Ending::FailedReplayable(outcome) => outcome,
            other => panic!("{other:?}"),
        },
        RequestOutcome::Replayed(replayed) => &replayed.outcome,
        other => panic!("no outcome: {other:?}"),
    };
    match &outcome.body {
        Body::Kept(bytes) => String::from_utf8_lossy(bytes).into_owned(),
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
