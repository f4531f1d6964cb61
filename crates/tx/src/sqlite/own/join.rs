//! Local commands by hand, in a transaction on a connection of the application's own.

use super::check::{check_idle, check_open, is_marked, mark};
use super::commit::{Committed, commit};
use super::rows::{Entries, RecordWrite, look, write};
use crate::ending::{Held, LOOKS_MAX, Pending, Written, ended};
use crate::error::Error;
use semel::local::{Entered, Local, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, Waiting};
use semel::{Answer, Engine, Intent};
use semel_core::outcome::Outcome;
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};
use std::fmt;

/// What came of beginning a command.
#[derive(Debug)]
pub enum Begun<'c> {
    /// The command is this transaction's to run.
    Mine(Mine<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. No transaction is open.
    Answered(Answer),
}

/// What came of joining a transaction.
#[derive(Debug)]
pub enum Joined<'c> {
    /// The command is this transaction's to run.
    Mine(Mine<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. The transaction holds nothing of it.
    Answered {
        /// The caller's transaction, as it was.
        transaction: Transaction<'c, Sqlite>,
        /// What the caller of the command is told.
        answer: Answer,
    },
}

/// A transaction that is to end with a local command's record.
///
/// It cannot be committed otherwise. Dropped, it is rolled back, and an alarm is raised: somebody forgot to end it.
#[must_use = "dropped, the transaction is rolled back"]
pub struct Mine<'c> {
    transaction: Transaction<'c, Sqlite>,
    held: Held,
    seen: Entries,
}

/// A transaction that holds a local command's record, ready to be committed.
#[must_use = "nothing is durable before the commit"]
pub struct Recorded<'c> {
    transaction: Transaction<'c, Sqlite>,
    written: Written,
}

/// Begins a transaction on `connection` for what `intent` asks for. It ends with [`Mine::succeed`] or [`Mine::refuse`].
///
/// Does not wait for twins: where one runs, the answer is that it is in progress. For the file's write lock it waits as long as the connection's
/// `busy_timeout` says.
///
/// The connection must be to the store's file, with no transaction open, and `synchronous` at `FULL` (`sqlx`'s default) or more.
pub async fn begin<'c>(
    engine: &Engine,
    connection: &'c mut SqliteConnection,
    intent: Intent,
) -> Result<Begun<'c>, Error> {
    check_idle(engine, connection).await?;
    let command = match engine.enter_local(intent, Waiting::Never).await? {
        Entered::Answered(answer) => return Ok(Begun::Answered(answer)),
        Entered::Mine(command) => command,
    };
    let transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
    match joined(transaction, command).await? {
        Joined::Mine(mine) => Ok(Begun::Mine(mine)),
        Joined::Answered { transaction, answer } => {
            transaction.rollback().await.map_err(Error::Database)?;
            Ok(Begun::Answered(answer))
        }
    }
}

/// Joins `transaction` for what `intent` asks for: from here on it is the command's own, and ends with [`Mine::succeed`] or
/// [`Mine::refuse`].
///
/// Begin it with `BEGIN IMMEDIATE`. One of another kind gets the file's write lock here, or fails with [`Error::StaleSnapshot`] where
/// somebody has written since it began to read. It must not be nested in another; `synchronous` must be at `FULL` (`sqlx`'s default) or
/// more. On an error it is rolled back.
///
/// Does not wait for twins: where one runs, the answer is that it is in progress.
///
/// What the transaction wrote before belongs to the command from now on: [`Mine::refuse`] undoes that too. Join first.
///
/// The store needs an id by then: while the transaction is open, the engine cannot write one. Call [`Engine::store_id`] at start.
pub async fn join<'c>(
    engine: &Engine,
    mut transaction: Transaction<'c, Sqlite>,
    intent: Intent,
) -> Result<Joined<'c>, Error> {
    check_open(engine, &mut transaction).await?;
    match engine.enter_local(intent, Waiting::Never).await? {
        Entered::Answered(answer) => Ok(Joined::Answered { transaction, answer }),
        Entered::Mine(command) => joined(transaction, command).await,
    }
}

/// Looks, under the file's write lock, whether the command is this transaction's to run.
async fn joined(
    mut transaction: Transaction<'_, Sqlite>,
    mut command: LocalCommand,
) -> Result<Joined<'_>, Error> {
    for _ in 0..LOOKS_MAX {
        let (looked, seen) = look(&mut transaction, command.ids(), &command.patience()).await?;
        let answer = match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                mark(&mut transaction).await?;
                let held = Held::new(command, attempt);
                return Ok(Joined::Mine(Mine { transaction, held, seen }));
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
    pub fn connection(&mut self) -> &mut SqliteConnection {
        &mut self.transaction
    }

    /// The command took effect: writes its outcome into the transaction, which is still to be [committed](Recorded::commit).
    pub async fn succeed(self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let Self { transaction, held, seen } = self;
        record(transaction, held.into_parts(), &seen, LocalEnding::Succeeded(outcome)).await
    }

    /// The command is refused for good: undoes everything that the transaction has written, and writes the refusal, which is then
    /// to be [committed](Recorded::commit) alone.
    pub async fn refuse(self, outcome: Outcome) -> Result<Recorded<'c>, Error> {
        let Self { mut transaction, held, .. } = self;
        let (mut command, attempt) = held.into_parts();
        command.rolled_back(attempt);
        // A new transaction, which others may have come before: look again.
        // Refused where SQLite has rolled back by itself.
        drop(sqlx::query("ROLLBACK").execute(&mut *transaction).await);
        sqlx::query("BEGIN IMMEDIATE").execute(&mut *transaction).await.map_err(Error::Database)?;
        let (looked, seen) = look(&mut transaction, command.ids(), &command.patience()).await?;
        match command.judge(looked).await? {
            LocalJudgement::Run(attempt) => {
                mark(&mut transaction).await?;
                record(transaction, (command, attempt), &seen, LocalEnding::Refused(outcome)).await
            }
            // Somebody else was faster.
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
async fn record<'c>(
    mut transaction: Transaction<'c, Sqlite>,
    (command, attempt): (LocalCommand, LocalAttempt),
    seen: &Entries,
    ending: LocalEnding,
) -> Result<Recorded<'c>, Error> {
    if !is_marked(&mut transaction).await {
        let operation_id = attempt.local().operation_id;
        command.unfinished(&attempt, true);
        command.rolled_back(attempt);
        drop(transaction.rollback().await);
        return Err(Error::TransactionLeft(operation_id));
    }
    let error = match ended(&command, &attempt, ending, RecordWrite::of_local) {
        Ok((writes, row)) => match write(&mut transaction, &writes, row, seen).await {
            Ok(()) => return Ok(Recorded { transaction, written: Written { command, attempt, writes } }),
            Err(error) => error,
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
    /// A commit of which nobody knows what became is looked into: where the file has it, this is an answer like any other, otherwise
    /// [`Error::CommitInDoubt`].
    pub async fn commit(self) -> Result<Answer, Error> {
        let Self { transaction, written } = self;
        let Written { command, attempt, writes } = &written;
        match commit(transaction, &command.patience(), command.committing(writes)).await {
            Committed::Yes => Ok(written.committed()),
            Committed::No(error) => {
                written.rolled_back();
                Err(Error::Database(error))
            }
            Committed::Unknown(_) if command.has_landed(writes).await => Ok(written.committed()),
            Committed::Unknown(source) => {
                command.commit_in_doubt(attempt);
                Err(Error::CommitInDoubt { operation_id: attempt.local().operation_id, source })
            }
        }
    }

    /// The transaction, for whoever commits it by other means, and what to call [afterwards](Pending::committed). Twins of this
    /// process wait until then.
    pub fn into_parts(self) -> (Transaction<'c, Sqlite>, Pending) {
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
