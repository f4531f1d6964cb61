//! Deliberate faults, which the judge must find. They can only be enabled on the command line of this
//! program.

use clap::ValueEnum;
use semel::core::id::CommandId;
use semel::core::record::Record;
use semel::core::store::{Change, Clock as _, Delegate, Pending, Store, Written};
use std::sync::Arc;
use std::time::Duration;

/// A deliberate fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sabotage {
    /// Outcomes are acknowledged before they are stored.
    AnswerEarly,
    /// Every process starts with an empty store.
    Forget,
    /// An effect that is not deduplicated is run again after its owner died.
    TakeOver,
    /// A lease as long as a retention period.
    Wedge,
    /// Work ends in doubt without recording why.
    SilentDoubt,
    /// The disk reports "synced" and syncs nothing, as with `synchronous=OFF`.
    NoSync,
}

impl Sabotage {
    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// A store that acknowledges a final outcome, and writes it a moment later.
pub(crate) struct AnswersEarly(pub(crate) Arc<dyn Store>);

impl Delegate for AnswersEarly {
    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn write<'a>(&'a self, id: CommandId, change: Change<&'a Record>) -> Pending<'a, Written> {
        if !change.record().is_some_and(|next| next.is_terminal()) {
            return self.0.write(id, change);
        }
        let (store, change) = (Arc::clone(&self.0), change.map(Record::clone));
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(40)).await;
            drop(store.write(id, change.as_ref()).await);
        });
        Box::pin(async { Ok(Written::Done { now: semel::SystemClock.now() }) })
    }
}
