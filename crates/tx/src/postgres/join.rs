//! Local commands by hand, in a transaction that is open already.

use super::conduct::{Committed, commit};
use super::database::Database;
use super::look::{Seen, look};
use super::settle::settle;
use super::write::{Unwritten, write};
use crate::error::Error;
use semel::local::{
    Entered, Local, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, Unanswered,
    Unwritable, Waiting, without_body,
};
use semel::{Answer, Engine, Intent};
use semel_core::outcome::Outcome;
use semel_core::store::{self, Kind};
use sqlx::{PgConnection, Postgres, Transaction};
use std::fmt;

/// What came of joining a transaction.
#[derive(Debug)]
pub enum Joined<'c> {
    /// The command is this transaction's to run.
    Mine(Mine<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. The transaction holds nothing of it.
    Answered {
        /// The caller's transaction, as it was.
        transaction: Transaction<'c, Postgres>,
        /// What the caller of the command is told.
        answer: Answer,
    },
}

/// A transaction that is to end with a local command's record.
///
/// It cannot be committed otherwise. Dropped, it is rolled back, and an alarm is raised: somebody forgot to end it.
#[must_use = "dropped, the transaction is rolled back"]
pub struct Mine<'c> {
    transaction: Option<Transaction<'c, Postgres>>,
    state: Option<Box<(LocalCommand, LocalAttempt)>>,
    database: Database,
    seen: Seen,
    local: Local,
}

/// A transaction that holds a local command's record, ready to be committed.
#[must_use = "nothing is durable before the commit"]
pub struct Recorded<'c> {
    transaction: Transaction<'c, Postgres>,
    command: LocalCommand,
    attempt: LocalAttempt,
    writes: LocalWrites,
    database: Database,
    seen: Seen,
}

/// Joins `transaction` for what `intent` asks for: from here on it is the command's own, and ends with [`Mine::succeed`] or
/// [`Mine::refuse`].
///
/// Does not wait: where a twin runs, the answer is that it is in progress. The transaction is the caller's, so that it runs in no task
/// of the engine's, and one that is dropped is rolled back.
///
/// `transaction` must not be nested in another: its commit ends all of it.
///
/// What the transaction wrote before belongs to the command from now on: [`Mine::refuse`] undoes that too. Join first.
///
/// Above `READ COMMITTED` the transaction sees the record as it was at its own first statement. Where that is too old, ending it
/// fails with [`Error::StaleSnapshot`] and everything is rolled back: try again with a new transaction.
pub async fn join<'c>(
    engine: &Engine,
    database: &Database,
    mut transaction: Transaction<'c, Postgres>,
    intent: Intent,
) -> Result<Joined<'c>, Error> {
    let checked = database.check(engine).await?;
    let mut command = match engine.enter_local(intent, Waiting::Never).await? {
        Entered::Answered(answer) => return Ok(Joined::Answered { transaction, answer }),
        Entered::Mine(command) => command,
    };
    for _ in 0..LOOKS_MAX {
        let (looked, seen) = look(&mut transaction, checked, command.ids(), &command.patience()).await?;
        let answer = match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                let local = attempt.local();
                let (transaction, state) = (Some(transaction), Some(Box::new((command, attempt))));
                let mine = Mine { transaction, state, database: database.clone(), seen, local };
                return Ok(Joined::Mine(mine));
            }
            LocalJudgement::Answered(answer) => answer,
            LocalJudgement::Wait => command.in_progress(),
            LocalJudgement::Again => continue,
        };
        return Ok(Joined::Answered { transaction, answer });
    }
    Err(Error::StaleSnapshot)
}

/// How often a command is looked for while the hashing secret is being replaced.
const LOOKS_MAX: u32 = 4;

impl<'c> Mine<'c> {
    /// What is known of the command.
    pub fn local(&self) -> Local {
        self.local
    }

    /// The transaction's connection, for the command's own statements. Must not be committed or rolled back.
    pub fn connection(&mut self) -> &mut PgConnection {
        self.transaction.as_mut().expect("only its end takes it out")
    }

    /// The command took effect: writes its outcome into the transaction, which is still to be [committed](Recorded::commit).
    pub async fn succeed(mut self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let (transaction, command, attempt) = self.taken()?;
        self.record(transaction, command, attempt, LocalEnding::Succeeded(outcome)).await
    }

    /// The command is refused for good: undoes everything that the transaction has written, and writes the refusal, which is then
    /// to be [committed](Recorded::commit) alone.
    pub async fn refuse(mut self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let (mut transaction, mut command, attempt) = self.taken()?;
        command.rolled_back(attempt);
        // A new transaction at the same level, and with it the lock is gone: look again.
        sqlx::query("ROLLBACK AND CHAIN").execute(&mut *transaction).await.map_err(Error::Database)?;
        let checked = self.database.checked()?;
        let (looked, seen) = look(&mut transaction, checked, command.ids(), &command.patience()).await?;
        self.seen = seen;
        match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                self.record(transaction, command, attempt, LocalEnding::Refused(outcome)).await
            }
            // Somebody else was faster, or is at it.
            _ => Err(Error::StaleSnapshot),
        }
    }

    /// Gives the command up: rolls everything back, and nothing says that it ever ran.
    pub async fn abandon(mut self) -> Result<(), Error> {
        let (transaction, command, attempt) = self.taken()?;
        command.rolled_back(attempt);
        transaction.rollback().await.map_err(Error::Database)
    }

    fn taken(&mut self) -> Result<(Transaction<'c, Postgres>, LocalCommand, LocalAttempt), Error> {
        match (self.transaction.take(), self.state.take()) {
            (Some(transaction), Some(state)) => {
                let (command, attempt) = *state;
                Ok((transaction, command, attempt))
            }
            _ => Err(Error::Store(store::Error::new(Kind::Unfit, "ending a transaction twice"))),
        }
    }

    async fn record(
        &self,
        mut transaction: Transaction<'c, Postgres>,
        command: LocalCommand,
        attempt: LocalAttempt,
        mut ending: LocalEnding,
    ) -> Result<Recorded<'c>, Error> {
        let checked = self.database.checked()?;
        let error = loop {
            let writes = match command.end(&attempt, ending.clone()) {
                Ok(writes) => writes,
                Err(Unwritable::Stale) => break Error::StaleSnapshot,
                Err(Unwritable::Clock) => break Error::ClockNotTrusted,
                Err(Unwritable::Refused(refusal)) => {
                    let error = store::Error::new(Kind::Unfit, "ending a local command");
                    break Error::Store(error.because(refusal));
                }
            };
            match write(&mut transaction, checked, &self.seen, &writes).await {
                Ok(()) => {
                    let (database, seen) = (self.database.clone(), self.seen.clone());
                    return Ok(Recorded { transaction, command, attempt, writes, database, seen });
                }
                Err(Unwritten::Conflict) => break Error::StaleSnapshot,
                Err(Unwritten::Left) => {
                    command.unfinished(&attempt, true);
                    break Error::TransactionLeft(self.local.operation_id);
                }
                Err(Unwritten::TooLarge(error)) => match without_body(ending) {
                    Some(without) => ending = without,
                    None => break Error::Store(error),
                },
                Err(Unwritten::Failed(error)) => break error,
            }
        };
        command.rolled_back(attempt);
        // Best effort: dropped, it is rolled back as well.
        drop(transaction.rollback().await);
        Err(error)
    }
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            let (command, attempt) = *state;
            command.unfinished(&attempt, false);
            command.rolled_back(attempt);
        }
    }
}

impl<'c> Recorded<'c> {
    /// Commits, wakes those who wait for the command, and yields what its caller is told.
    ///
    /// A commit of which nobody knows what became is looked into like that of [`transact`](super::transact).
    pub async fn commit(self) -> Result<Answer, Error> {
        let Self { mut transaction, command, attempt, writes, database, seen } = self;
        // By hand: of a nested transaction, sqlx would release the savepoint and commit nothing.
        let committing = sqlx::query("COMMIT").execute(&mut *transaction);
        let patience = command.patience();
        let committed = commit(&patience, command.committing(&writes), committing, patience.uptime()).await;
        drop(transaction);
        match committed {
            Committed::Yes => Ok(command.committed(attempt, writes)),
            Committed::No(error) => {
                command.rolled_back(attempt);
                Err(Error::Database(error))
            }
            Committed::Unknown(cause) => {
                Box::pin(settle(command, &database, &seen, attempt, writes, cause)).await
            }
        }
    }

    /// The transaction, for whoever commits it by other means, and what to call [afterwards](Pending::committed). Twins of this
    /// process wait until then.
    pub fn into_parts(self) -> (Transaction<'c, Postgres>, Pending) {
        let Self { transaction, command, attempt, writes, .. } = self;
        let unanswered = command.committing(&writes);
        (transaction, Pending { command, attempt, writes, unanswered })
    }
}

/// A local command whose transaction somebody else commits.
#[must_use = "twins of this process wait until it is dropped"]
pub struct Pending {
    command: LocalCommand,
    attempt: LocalAttempt,
    writes: LocalWrites,
    unanswered: Unanswered,
}

impl Pending {
    /// The transaction has committed: wakes those who wait, and yields what the command's caller is told. Where it has not, or nobody
    /// knows, drop this instead: whoever waits then looks for itself.
    pub fn committed(self) -> Answer {
        self.unanswered.answered();
        self.command.committed(self.attempt, self.writes)
    }
}

impl fmt::Debug for Mine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mine").field("local", &self.local).finish_non_exhaustive()
    }
}

impl fmt::Debug for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("local", &self.attempt.local()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").field("local", &self.attempt.local()).finish_non_exhaustive()
    }
}
