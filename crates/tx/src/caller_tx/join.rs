//! Local commands in a transaction that is already open.

use super::commit::Committed;
use super::dialect::{Dialect, WriteFailure};
use super::open::Open;
use crate::ending::{Held, Pending, READS_MAX, Written, ended, recorded};
use crate::error::Error;
use semel::local::{EnterResult, Local, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, Waiting};
use semel::{Engine, ExecuteResponse, Intent, RecordedOutcome, Refusal};
use semel_core::outcome::Outcome;
use sqlx::Transaction;
use std::fmt;

/// The result of joining a transaction.
#[derive(Debug)]
pub enum Joined<'c, D: Dialect> {
    /// This transaction must run the command.
    Owned(OwnedTransaction<'c, D>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. The transaction contains
    /// nothing of it.
    Answered {
        /// The caller's transaction, unchanged.
        transaction: Transaction<'c, D>,
        /// The outcome for the command's caller, or why there is none.
        answer: Result<RecordedOutcome, Refusal>,
    },
}

/// A transaction that must end with a local command's record.
///
/// It cannot be committed otherwise. Dropping it rolls it back, and is reported: its ending was forgotten.
#[must_use = "dropped, the transaction is rolled back"]
pub struct OwnedTransaction<'c, D: Dialect> {
    open: Open<'c, D>,
    held: Held,
    target: D::Target,
    seen: D::Seen,
}

/// A transaction that contains a local command's record, ready to be committed.
#[must_use = "nothing is durable before the commit"]
pub struct Recorded<'c, D: Dialect> {
    open: Open<'c, D>,
    written: Written,
    target: D::Target,
    seen: D::Seen,
}

/// Joins an open transaction. Does not wait for duplicates.
pub(crate) async fn join<'c, D: Dialect>(
    engine: &Engine,
    target: D::Target,
    open: Open<'c, D>,
    intent: Intent,
) -> Result<Joined<'c, D>, Error> {
    // Boxed, so that the future that applications hold stays small.
    match Box::pin(engine.enter_local(intent, Waiting::Never)).await? {
        EnterResult::Answered(answer) => Ok(answered(open, answer)),
        EnterResult::Owned(command) => Box::pin(look_and_join(target, open, command)).await,
    }
}

/// Checks whether this transaction must run the command.
pub(crate) async fn look_and_join<D: Dialect>(
    target: D::Target,
    mut open: Open<'_, D>,
    mut command: LocalCommand,
) -> Result<Joined<'_, D>, Error> {
    for _ in 0..READS_MAX {
        let idle_max = command.idle_max();
        let (look, seen) = D::look(&mut open, &target, command.ids(), idle_max, &command.timeouts()).await?;
        let answer = match command.judge(look).await? {
            LocalJudgement::Run(attempt) => {
                D::mark(&mut open).await?;
                let held = Held::new(command, attempt);
                return Ok(Joined::Owned(OwnedTransaction { open, held, target, seen }));
            }
            LocalJudgement::Answered(answer) => answer,
            LocalJudgement::Wait => command.in_progress(),
            LocalJudgement::Again => {
                D::give_back(&mut open, &seen).await?;
                continue;
            }
        };
        D::give_back(&mut open, &seen).await?;
        return Ok(answered(open, answer));
    }
    Err(Error::StaleSnapshot)
}

fn answered<D: Dialect>(open: Open<'_, D>, answer: ExecuteResponse) -> Joined<'_, D> {
    Joined::Answered { transaction: open.into_transaction(), answer: answer.into_outcome() }
}

impl<'c, D: Dialect> OwnedTransaction<'c, D> {
    /// What is known about the command.
    pub fn local(&self) -> Local {
        self.held.local()
    }

    /// The transaction's connection, for the command's own statements. Must not be committed or rolled back.
    pub fn connection(&mut self) -> &mut D::Connection {
        &mut self.open
    }

    /// The command took effect: writes its outcome into the transaction, which must still be
    /// [committed](Recorded::commit).
    pub async fn succeed(self, outcome: Outcome) -> Result<Recorded<'c, D>, Error> {
        let Self { open, held, target, seen } = self;
        record(open, (target, seen), held.into_parts(), LocalEnding::Succeeded(outcome)).await
    }

    /// The command is refused permanently: undoes all writes of the transaction, and writes the refusal,
    /// which must then be [committed](Recorded::commit) alone.
    pub async fn refuse(self, outcome: Outcome) -> Result<Recorded<'c, D>, Error> {
        let Self { mut open, held, target, .. } = self;
        let (mut command, attempt) = held.into_parts();
        command.rolled_back(attempt);
        // Without the lock others may have been faster: read again.
        D::restart(&mut open).await?;
        let idle_max = command.idle_max();
        let (look, seen) = D::look(&mut open, &target, command.ids(), idle_max, &command.timeouts()).await?;
        match command.judge(look).await? {
            LocalJudgement::Run(attempt) => {
                D::mark(&mut open).await?;
                record(open, (target, seen), (command, attempt), LocalEnding::Refused(outcome)).await
            }
            _ => Err(Error::StaleSnapshot),
        }
    }

    /// Gives the command up: rolls everything back, without a trace that it ran.
    pub async fn abandon(self) -> Result<(), Error> {
        let (command, attempt) = self.held.into_parts();
        command.rolled_back(attempt);
        self.open.roll_back().await
    }
}

/// Writes the ending into the transaction, or rolls it back.
async fn record<D: Dialect>(
    mut open: Open<'_, D>,
    (target, seen): (D::Target, D::Seen),
    (command, attempt): (LocalCommand, LocalAttempt),
    ending: LocalEnding,
) -> Result<Recorded<'_, D>, Error> {
    let written_at = command.timeouts().uptime();
    let error = match ended(&command, &attempt, ending, |writes| D::row(writes.id, &writes.write)) {
        Ok((writes, row)) => match D::write(&mut open, &target, &seen, &writes, row).await {
            // A nested transaction was left open, and would be committed instead of the outer one.
            Ok(()) if open.depth() != 1 => {
                command.unfinished(&attempt, false);
                Error::TransactionLeft(attempt.local().operation_id)
            }
            Ok(()) => {
                let written = Written { command, attempt, writes, since: written_at };
                return Ok(Recorded { open, written, target, seen });
            }
            Err(WriteFailure::Conflict) => Error::StaleSnapshot,
            Err(WriteFailure::Left) => {
                command.unfinished(&attempt, true);
                Error::TransactionLeft(attempt.local().operation_id)
            }
            Err(WriteFailure::Failed(error)) => error,
        },
        Err(error) => error,
    };
    command.rolled_back(attempt);
    // Best effort: dropping it also rolls it back.
    drop(open.roll_back().await);
    Err(error)
}

impl<'c, D: Dialect> Recorded<'c, D> {
    /// Commits, wakes callers that wait for the command, and returns the outcome for its caller: that of the
    /// success, or of the refusal.
    ///
    /// Call it right away: after the store's timeout (10 s by default) since the record was written, nothing
    /// is committed and the error is [`Error::CommitTooLate`].
    ///
    /// If the database does not answer the commit, its connection is closed and the record is looked up.
    /// [`Error::CommitInDoubt`] means that this settled nothing.
    pub async fn commit(self) -> Result<RecordedOutcome, Error> {
        Box::pin(self.try_commit()).await.map(recorded)
    }

    async fn try_commit(self) -> Result<ExecuteResponse, Error> {
        let Self { open, written, target, seen } = self;
        let timeouts = written.command.timeouts();
        let unanswered = written.command.committing(&written.writes);
        match open.commit(&target, &timeouts, unanswered, written.since, &seen).await {
            Committed::Yes => Ok(written.committed()),
            Committed::No(error) => {
                written.rolled_back();
                Err(error)
            }
            Committed::Unknown(cause) => Box::pin(written.settle::<D>(&target, &seen, cause)).await,
        }
    }

    /// The transaction, to be committed by other means, and what to call [afterwards](Pending::committed).
    /// Duplicates in this process wait until then.
    ///
    /// Commit it while [`Pending::time_left`] is not zero, and roll it back after that.
    pub fn into_parts(self) -> (Transaction<'c, D>, Pending) {
        let unconfirmed = D::unconfirmed_timeline(&self.seen).map(str::to_owned);
        (self.open.into_transaction(), self.written.pending(unconfirmed))
    }
}

impl<D: Dialect> fmt::Debug for OwnedTransaction<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedTransaction").field("local", &self.local()).finish_non_exhaustive()
    }
}

impl<D: Dialect> fmt::Debug for Recorded<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("local", &self.written.attempt.local()).finish_non_exhaustive()
    }
}
