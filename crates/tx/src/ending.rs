//! How local commands end: the steps between the lookup and the commit that do not depend on the database. No
//! SQL.

use crate::error::Error;
use semel::local::{
    EnterResult, Local, LocalAttempt, LocalCommand, LocalEnding, LocalWrites, Unanswered, Unwritable,
    Waiting, without_body,
};
use semel::{Engine, ExecuteResponse, Finishing, Intent, NotFinished, RecordedOutcome};
use semel_core::id::CommandId;
use semel_core::machine::Write;
use semel_core::store::{self, Kind, Reading};
use std::fmt;
use std::time::Duration;

/// How often a command is looked up while the hashing secret is being replaced.
pub(crate) const READS_MAX: u32 = 4;

/// Answers `intent`, or runs it with `conduct`, in a task of the engine.
pub(crate) async fn conduct_in_engine<F>(
    engine: &Engine,
    intent: Intent,
    conduct: impl FnOnce(LocalCommand) -> F + Send + 'static,
) -> Result<ExecuteResponse, Error>
where
    F: Future<Output = Result<ExecuteResponse, Error>> + Send + 'static,
{
    let command = match engine.enter_local(intent, Waiting::Allowed).await? {
        EnterResult::Answered(answer) => return Ok(answer),
        EnterResult::Owned(command) => command,
    };
    let operation_id = command.operation_id();
    command.conduct(conduct).await?.unwrap_or_else(|| {
        let source = "the runtime was shut down in the middle of it".into();
        Err(Error::CommitInDoubt { operation_id, source })
    })
}

/// The write of the attempt's transaction for an ending, encoded by `encode`.
pub(crate) fn ended<T>(
    command: &LocalCommand,
    attempt: &LocalAttempt,
    ending: LocalEnding,
    encode: impl Fn(&LocalWrites) -> Result<T, store::Error>,
) -> Result<(LocalWrites, T), Error> {
    encode_fitting(ending, |ending| {
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

/// The encoded write that ends an attempt with an external effect, given what was read at `asked`.
pub(crate) fn finished<T>(
    finishing: &mut Finishing,
    ending: LocalEnding,
    (reading, asked): (&Reading, Duration),
    encode: impl Fn(CommandId, &Write) -> Result<T, store::Error>,
) -> Result<T, Error> {
    let (id, operation_id) = (finishing.id(), finishing.operation_id());
    encode_fitting(ending, |ending| {
        let write = finishing.judge(ending, reading, asked).map_err(|refusal| match refusal {
            NotFinished::Overtaken => Error::Overtaken(operation_id),
            NotFinished::Clock => Error::ClockNotTrusted,
        })?;
        encode(id, write).map_err(Error::Store)
    })
}

/// Encodes an ending; without the body of its outcome if it is too large for the store.
fn encode_fitting<T>(
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

/// A command in a transaction that the application has to end. Dropping it means that the ending was
/// forgotten, which is reported.
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

    /// For the code that ends it.
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
    /// The transaction itself is handled elsewhere.
    pub(crate) fn pending(self, unconfirmed_timeline: Option<String>) -> Pending {
        let unanswered = self.command.committing(&self.writes);
        Pending { written: self, unanswered, unconfirmed_timeline }
    }

    pub(crate) fn committed(self) -> ExecuteResponse {
        self.command.committed(self.attempt, self.writes)
    }

    pub(crate) fn rolled_back(self) {
        self.command.rolled_back(self.attempt);
    }
}

/// A local command whose transaction is committed by other code.
#[must_use = "duplicates in this process wait until it is dropped"]
pub struct Pending {
    written: Written,
    unanswered: Unanswered,
    /// The timeline on which the store has to confirm the commit.
    unconfirmed_timeline: Option<String>,
}

impl Pending {
    /// Whether the commit is durable, on the server's standby too if commits wait for one. Ask after the commit
    /// and before [`committed`](Self::committed): a server acknowledges a commit whose wait for the standby was
    /// cancelled. `false` means that this is unknown: drop this instead. Costs nothing without such a standby.
    pub async fn is_confirmed(&self) -> bool {
        match &self.unconfirmed_timeline {
            Some(timeline) => self.written.command.timeouts().has_confirmed_commits(timeline).await,
            None => true,
        }
    }

    /// The transaction has committed: wakes the waiting callers, and returns the outcome for the command's
    /// caller. If it has not committed, or that is unknown, drop this instead: waiting callers then check by
    /// themselves.
    pub fn committed(self) -> RecordedOutcome {
        self.unanswered.answered();
        recorded(self.written.committed())
    }

    /// How much time is left for the commit. After that the transaction must be rolled back: others may use
    /// another hashing secret by then, under which they do not find this record.
    pub fn time_left(&self) -> Duration {
        let timeouts = self.written.command.timeouts();
        let passed = timeouts.uptime().saturating_sub(self.written.since);
        timeouts.store_timeout().saturating_sub(passed)
    }
}

/// The outcome in the answer to a commit.
pub(crate) fn recorded(committed: ExecuteResponse) -> RecordedOutcome {
    committed.into_recorded().expect("its outcome was committed")
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("local", &self.written.attempt.local()).finish_non_exhaustive()
    }
}
