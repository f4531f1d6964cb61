//! Local commands by hand, in a transaction that is open already.

use super::conduct::{Committed, commit};
use super::database::Database;
use super::look::{Seen, look};
use super::settle::settle;
use super::write::{RecordWrite, Unwritten, write};
use crate::ending::{Held, LOOKS_MAX, Pending, Written, ended};
use crate::error::Error;
use semel::local::{Entered, Local, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, Waiting};
use semel::{Answer, Engine, Intent};
use semel_core::outcome::Outcome;
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
    transaction: Transaction<'c, Postgres>,
    held: Held,
    database: Database,
    seen: Seen,
}

/// A transaction that holds a local command's record, ready to be committed.
#[must_use = "nothing is durable before the commit"]
pub struct Recorded<'c> {
    transaction: Transaction<'c, Postgres>,
    written: Written,
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
                let held = Held::new(command, attempt);
                return Ok(Joined::Mine(Mine { transaction, held, database: database.clone(), seen }));
            }
            LocalJudgement::Answered(answer) => answer,
            LocalJudgement::Wait => command.in_progress(),
            LocalJudgement::Again => continue,
        };
        return Ok(Joined::Answered { transaction, answer });
    }
    Err(Error::StaleSnapshot)
}

impl<'c> Mine<'c> {
    /// What is known of the command.
    pub fn local(&self) -> Local {
        self.held.local()
    }

    /// The transaction's connection, for the command's own statements. Must not be committed or rolled back.
    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// The command took effect: writes its outcome into the transaction, which is still to be [committed](Recorded::commit).
    pub async fn succeed(self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let Self { transaction, held, database, seen } = self;
        let (command, attempt) = held.into_parts();
        record(transaction, database, seen, (command, attempt), LocalEnding::Succeeded(outcome)).await
    }

    /// The command is refused for good: undoes everything that the transaction has written, and writes the refusal, which is then
    /// to be [committed](Recorded::commit) alone.
    pub async fn refuse(self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let Self { mut transaction, held, database, .. } = self;
        let (mut command, attempt) = held.into_parts();
        command.rolled_back(attempt);
        // A new transaction at the same level, and with it the lock is gone: look again.
        sqlx::query("ROLLBACK AND CHAIN").execute(&mut *transaction).await.map_err(Error::Database)?;
        let checked = database.checked()?;
        let (looked, seen) = look(&mut transaction, checked, command.ids(), &command.patience()).await?;
        match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                let refused = LocalEnding::Refused(outcome);
                record(transaction, database, seen, (command, attempt), refused).await
            }
            // Somebody else was faster, or is at it.
            _ => Err(Error::StaleSnapshot),
        }
    }

    /// Gives the command up: rolls everything back, and nothing says that it ever ran.
    pub async fn abandon(self) -> Result<(), Error> {
        let (command, attempt) = self.held.into_parts();
        command.rolled_back(attempt);
        self.transaction.rollback().await.map_err(Error::Database)
    }
}

/// Writes the ending into the transaction, or rolls it back.
async fn record(
    mut transaction: Transaction<'_, Postgres>,
    database: Database,
    seen: Seen,
    (command, attempt): (LocalCommand, LocalAttempt),
    ending: LocalEnding,
) -> Result<Recorded<'_>, Error> {
    let error = match ended(&command, &attempt, ending, RecordWrite::of_local) {
        Ok((writes, row)) => match write(&mut transaction, database.checked()?, &seen, &writes, row).await {
            Ok(()) => {
                let written = Written { command, attempt, writes };
                return Ok(Recorded { transaction, written, database, seen });
            }
            Err(Unwritten::Conflict) => Error::StaleSnapshot,
            Err(Unwritten::Left) => {
                command.unfinished(&attempt, true);
                Error::TransactionLeft(attempt.local().operation_id)
            }
            Err(Unwritten::Failed(error)) => error,
        },
        Err(error) => error,
    };
    command.rolled_back(attempt);
    // Best effort: dropped, it is rolled back as well.
    drop(transaction.rollback().await);
    Err(error)
}

impl<'c> Recorded<'c> {
    /// Commits, wakes those who wait for the command, and yields what its caller is told.
    ///
    /// A commit of which nobody knows what became is looked into like that of [`transact`](super::transact).
    pub async fn commit(self) -> Result<Answer, Error> {
        let Self { mut transaction, written, database, seen } = self;
        // By hand: of a nested transaction, sqlx would release the savepoint and commit nothing.
        let committing = sqlx::query("COMMIT").execute(&mut *transaction);
        let patience = written.command.patience();
        let unanswered = written.command.committing(&written.writes);
        let committed = commit(&patience, unanswered, committing, patience.uptime()).await;
        drop(transaction);
        match committed {
            Committed::Yes => Ok(written.committed()),
            Committed::No(error) => {
                written.rolled_back();
                Err(Error::Database(error))
            }
            Committed::Unknown(cause) => {
                let Written { command, attempt, writes } = written;
                Box::pin(settle(command, &database, &seen, attempt, writes, cause)).await
            }
        }
    }

    /// The transaction, for whoever commits it by other means, and what to call [afterwards](Pending::committed). Twins of this
    /// process wait until then.
    pub fn into_parts(self) -> (Transaction<'c, Postgres>, Pending) {
        (self.transaction, self.written.pending())
    }
}

impl fmt::Debug for Mine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mine").field("local", &self.local()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Recorded<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("local", &self.written.attempt.local()).finish_non_exhaustive()
    }
}
