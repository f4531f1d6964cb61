//! How commands end, whatever database they are in.
//!
//! What lives here: what both databases do alike with a command between its look and its commit. What must never: SQL.

use crate::error::Error;
use semel::local::{
    Entered, Local, LocalAttempt, LocalCommand, LocalEnding, LocalWrites, Unanswered, Unwritable, Waiting,
    without_body,
};
use semel::{Answer, Engine, Finishing, Intent, NotFinished};
use semel_core::id::CommandId;
use semel_core::machine::Write;
use semel_core::store::{self, Kind, Reading};
use std::fmt;
use std::time::Duration;

/// How often a command is looked for while the hashing secret is being replaced.
pub(crate) const LOOKS_MAX: u32 = 4;

/// Answers `intent`, or runs it by `conduct`, in a task of the engine's.
pub(crate) async fn conducted<F>(
    engine: &Engine,
    intent: Intent,
    conduct: impl FnOnce(LocalCommand) -> F + Send + 'static,
) -> Result<Answer, Error>
where
    F: Future<Output = Result<Answer, Error>> + Send + 'static,
{
    let command = match engine.enter_local(intent, Waiting::Allowed).await? {
        Entered::Answered(answer) => return Ok(answer),
        Entered::Mine(command) => command,
    };
    let operation_id = command.operation_id();
    command.conduct(conduct).await?.unwrap_or_else(|| {
        let source = "the runtime was shut down in the middle of it".into();
        Err(Error::CommitInDoubt { operation_id, source })
    })
}

/// What the attempt's transaction writes for an ending, and what `encode` makes of it.
pub(crate) fn ended<T>(
    command: &LocalCommand,
    attempt: &LocalAttempt,
    ending: LocalEnding,
    encode: impl Fn(&LocalWrites) -> Result<T, store::Error>,
) -> Result<(LocalWrites, T), Error> {
    fitted(ending, |ending| {
        let writes = command.end(attempt, ending).map_err(|unwritable| match unwritable {
            Unwritable::Stale => Error::StaleSnapshot,
            Unwritable::Clock => Error::ClockNotTrusted,
            Unwritable::Refused(refusal) => {
                Error::Store(store::Error::new(Kind::Unfit, "ending a local command").because(refusal))
            }
        })?;
        let encoded = encode(&writes).map_err(Error::Store)?;
        Ok((writes, encoded))
    })
}

/// What `encode` makes of the write that ends an attempt whose effect was elsewhere, given what was read at `asked`.
pub(crate) fn finished<T>(
    finishing: &mut Finishing,
    ending: LocalEnding,
    (reading, asked): (&Reading, Duration),
    encode: impl Fn(CommandId, &Write) -> Result<T, store::Error>,
) -> Result<T, Error> {
    let (id, operation_id) = (finishing.id(), finishing.operation_id());
    fitted(ending, |ending| {
        let write = finishing.judge(ending, reading, asked).map_err(|why| match why {
            NotFinished::Overtaken => Error::Overtaken(operation_id),
            NotFinished::Clock => Error::ClockNotTrusted,
        })?;
        encode(id, write).map_err(Error::Store)
    })
}

/// What `encode` makes of an ending; of one that is too large for the store, without the body of its outcome.
fn fitted<T>(
    mut ending: LocalEnding,
    mut encode: impl FnMut(LocalEnding) -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        match encode(ending.clone()) {
            Err(Error::Store(error)) if error.kind() == Kind::TooLarge => {
                ending = without_body(ending).ok_or(Error::Store(error))?;
            }
            encoded => return encoded,
        }
    }
}

/// A command in a transaction that the application is to end. Dropped, its ending was forgotten: an alarm is raised.
pub(crate) struct Held {
    parts: Option<Box<(LocalCommand, LocalAttempt)>>,
    local: Local,
}

impl Held {
    pub(crate) fn new(command: LocalCommand, attempt: LocalAttempt) -> Self {
        Self { local: attempt.local(), parts: Some(Box::new((command, attempt))) }
    }

    pub(crate) fn local(&self) -> Local {
        self.local
    }

    /// For whoever ends it.
    pub(crate) fn into_parts(mut self) -> (LocalCommand, LocalAttempt) {
        *self.parts.take().expect("only this and drop take them out")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            let (command, attempt) = *parts;
            command.unfinished(&attempt, false);
            command.rolled_back(attempt);
        }
    }
}

/// A command whose record is written, in a transaction that is still open.
pub(crate) struct Written {
    pub(crate) command: LocalCommand,
    pub(crate) attempt: LocalAttempt,
    pub(crate) writes: LocalWrites,
    /// The uptime at which its write began.
    pub(crate) since: Duration,
}

impl Written {
    /// What is to be done with the transaction is somebody else's.
    pub(crate) fn pending(self) -> Pending {
        let unanswered = self.command.committing(&self.writes);
        Pending { written: self, unanswered }
    }

    pub(crate) fn committed(self) -> Answer {
        self.command.committed(self.attempt, self.writes)
    }

    pub(crate) fn rolled_back(self) {
        self.command.rolled_back(self.attempt);
    }
}

/// A local command whose transaction somebody else commits.
#[must_use = "twins of this process wait until it is dropped"]
pub struct Pending {
    written: Written,
    unanswered: Unanswered,
}

impl Pending {
    /// The transaction has committed: wakes those who wait, and yields what the command's caller is told. Where it has not, or nobody
    /// knows, drop this instead: whoever waits then looks for itself.
    pub fn committed(self) -> Answer {
        self.unanswered.answered();
        self.written.committed()
    }

    /// How much time is left for the commit. Past it the transaction must be rolled back: others may have moved on to another hashing
    /// secret, under which they do not find this record.
    pub fn time_left(&self) -> Duration {
        let patience = self.written.command.patience();
        let passed = patience.uptime().saturating_sub(self.written.since);
        patience.store_timeout().saturating_sub(passed)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("local", &self.written.attempt.local()).finish_non_exhaustive()
    }
}
