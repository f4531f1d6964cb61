//! The course of a local command: look up, run, write, commit; repeated if that may help.

use super::Work;
use super::borrowed::BorrowedConnection;
use super::database::Database;
use super::look::{Seen, look};
use super::timed_out;
use super::write::{RecordWrite, server_error, write};
use crate::caller_tx::{Committed, WriteFailure, commit};
use crate::ending::{Written, ended};
use crate::error::{BoxError, Error};
use futures_util::FutureExt as _;
use semel::ExecuteResponse;
use semel::SPANS;
use semel::local::{
    DatabaseTimeouts, Interrupted, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites,
};
use semel_core::outcome::Outcome;
use semel_sql::postgres::transaction::{ServerError, TransactionStatements};
use sqlx::{Connection as _, PgPool, Postgres, Transaction};
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tracing::Instrument as _;

/// How often the work is run again before the last error is returned.
const RERUNS_MAX: u32 = 10;

/// The result of one transaction.
enum TransactionResult {
    Committed(LocalAttempt, LocalWrites),
    Answered(ExecuteResponse),
    /// The work refuses: the refusal must be committed alone.
    Refuses(Outcome),
    /// Another transaction has the lock.
    Wait,
    /// Rolled back; a retry may succeed.
    Again(Error),
    /// Rolled back.
    Failed(Error),
    /// It is unknown whether it committed.
    InDoubt(InDoubt),
}

/// A commit without an answer.
struct InDoubt {
    attempt: LocalAttempt,
    writes: LocalWrites,
    written_at: Duration,
    seen: Seen,
    cause: BoxError,
}

pub(super) async fn conduct(
    mut command: LocalCommand,
    database: Database,
    work: Work,
) -> Result<ExecuteResponse, Error> {
    let (mut refusal, mut reruns) = (None, 0);
    loop {
        match Box::pin(try_once(&mut command, &database, &work, refusal.as_ref())).await {
            TransactionResult::Committed(attempt, writes) => return Ok(command.committed(attempt, writes)),
            TransactionResult::Answered(answer) => return Ok(answer),
            TransactionResult::Refuses(outcome) => refusal = Some(outcome),
            TransactionResult::Wait => {
                let waits = command.pause().instrument(tracing::trace_span!(target: SPANS, "wait")).await;
                if !waits {
                    return Ok(command.in_progress());
                }
            }
            TransactionResult::Again(error) if reruns == RERUNS_MAX => return Err(error),
            TransactionResult::Again(_) => {
                reruns += 1;
                command.back_off().await;
            }
            TransactionResult::Failed(error) => return Err(error),
            TransactionResult::InDoubt(InDoubt { attempt, writes, written_at, seen, cause }) => {
                let written = Written { command, attempt, writes, since: written_at };
                return Box::pin(written.settle::<Postgres>(&database, &seen, cause)).await;
            }
        }
    }
}

/// Whether a commit that did not happen is retried.
fn not_committed(error: Error) -> TransactionResult {
    let is_conflict = match &error {
        Error::CommitTooLate => true,
        Error::Database(cause) => server_error(cause) == Some(ServerError::InTheWay),
        _ => false,
    };
    if is_conflict { TransactionResult::Again(error) } else { TransactionResult::Failed(error) }
}

/// A connection for a command whose terms are current.
async fn connect(command: &mut LocalCommand, database: &Database) -> Result<BorrowedConnection, Error> {
    command.refresh().map_err(Error::Engine)?;
    BorrowedConnection::from(&database.pool).await
}

async fn try_once(
    command: &mut LocalCommand,
    database: &Database,
    work: &Work,
    refusal: Option<&Outcome>,
) -> TransactionResult {
    let checked = match database.checked() {
        Ok(checked) => checked,
        Err(error) => return TransactionResult::Failed(error),
    };
    let mut connection = match connect(command, database).await {
        Ok(connection) => connection,
        Err(error) => return TransactionResult::Failed(error),
    };
    let timeouts = command.timeouts();
    let begin = connection.get().begin_with(database.isolation.begin());
    let begun = timeouts.bounded(begin).await.map(|begun| begun.map_err(Error::Database));
    let mut transaction = match begun.unwrap_or_else(|| Err(timed_out())) {
        Ok(transaction) => transaction,
        Err(error) => return TransactionResult::Failed(error),
    };
    let claim = tracing::trace_span!(target: SPANS, "claim");
    let looking = look(&mut transaction, checked, command.ids(), command.idle_max(), &timeouts);
    let looked = looking.instrument(claim).await;
    let (seen, judged) = match looked {
        Ok((look, seen)) => (seen, command.judge(look).await.map_err(Error::Engine)),
        Err(error) => return TransactionResult::Failed(error),
    };
    let attempt = match judged {
        Ok(LocalJudgement::Run(attempt)) => attempt,
        other => {
            if roll_back(&timeouts, transaction).await {
                connection.keep();
            }
            return match other {
                Ok(LocalJudgement::Answered(answer)) => TransactionResult::Answered(answer),
                Ok(LocalJudgement::Again) => TransactionResult::Again(Error::StaleSnapshot),
                Ok(LocalJudgement::Wait | LocalJudgement::Run(_)) => TransactionResult::Wait,
                Err(error) => TransactionResult::Failed(error),
            };
        }
    };
    let worked = match refusal {
        Some(outcome) => Ok(LocalEnding::Refused(outcome.clone())),
        None => run(command, &attempt, &mut transaction, work).await,
    };
    let ending = match worked {
        // Its own writes are rolled back first: the refusal is committed by a transaction without other
        // writes.
        Ok(LocalEnding::Refused(outcome)) if refusal.is_none() => Err(TransactionResult::Refuses(outcome)),
        Ok(ending) => Ok(ending),
        Err(result) => Err(result),
    };
    let written_at = timeouts.uptime();
    let writes = match ending {
        Ok(ending) => {
            let finish = tracing::trace_span!(target: SPANS, "finish");
            end(command, &attempt, &mut transaction, checked, &seen, ending).instrument(finish).await
        }
        Err(result) => Err(result),
    };
    match writes {
        Ok(writes) => {
            let unanswered = command.committing(&writes);
            match commit::<Postgres>(&timeouts, unanswered, transaction.commit(), written_at, &seen).await {
                // A nested transaction that the work left open was ended instead. Closing rolls back.
                Committed::Yes if connection.get().is_in_transaction() => {
                    let operation_id = attempt.local().operation_id;
                    command.unfinished(&attempt, false);
                    command.rolled_back(attempt);
                    TransactionResult::Failed(Error::TransactionLeft(operation_id))
                }
                Committed::Yes => {
                    connection.keep();
                    TransactionResult::Committed(attempt, writes)
                }
                Committed::No(error) => {
                    command.rolled_back(attempt);
                    not_committed(error)
                }
                // The connection is closed.
                Committed::Unknown(cause) => {
                    TransactionResult::InDoubt(InDoubt { attempt, writes, written_at, seen, cause })
                }
            }
        }
        Err(result) => {
            let is_over = if result.leaves_connection_idle() {
                roll_back(&timeouts, transaction).await
            } else {
                drop(transaction);
                false
            };
            if is_over {
                connection.keep();
            } else {
                // A statement may still run there. The server would notice a closed connection only after it.
                drop(connection);
                end_session(&database.pool, &seen, &timeouts).await;
            }
            command.rolled_back(attempt);
            result
        }
    }
}

impl TransactionResult {
    /// Whether no statement of the work can still run on the connection, and no transaction can be open there that sqlx
    /// does not know, as after `TransactionLeft`.
    fn leaves_connection_idle(&self) -> bool {
        let Self::Failed(error) = self else { return true };
        !matches!(error, Error::Overran | Error::Closing | Error::Panicked | Error::TransactionLeft(_))
    }
}

/// Runs the work.
async fn run(
    command: &LocalCommand,
    attempt: &LocalAttempt,
    transaction: &mut Transaction<'_, Postgres>,
    work: &Work,
) -> Result<LocalEnding, TransactionResult> {
    let running = AssertUnwindSafe(async { work(&mut *transaction, attempt.local()).await }).catch_unwind();
    match command.until_interrupted(attempt, running).await {
        Ok(Ok(Ok(ending))) => Ok(ending),
        Ok(Ok(Err(error))) if has_conflict(&*error) => Err(TransactionResult::Again(Error::Work(error))),
        Ok(Ok(Err(error))) => Err(TransactionResult::Failed(Error::Work(error))),
        Ok(Err(_)) => {
            command.panicked(attempt);
            Err(TransactionResult::Failed(Error::Panicked))
        }
        Err(Interrupted::Overran) => Err(TransactionResult::Failed(Error::Overran)),
        Err(Interrupted::Closing) => Err(TransactionResult::Failed(Error::Closing)),
    }
}

/// Whether the work failed because of a conflict with another transaction.
fn has_conflict(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return matches!(error, sqlx::Error::Database(error)
                if matches!(&*error.code().unwrap_or_default(), "40001" | "40P01"));
        }
        next = error.source();
    }
    false
}

/// Writes the ending into the transaction.
async fn end(
    command: &LocalCommand,
    attempt: &LocalAttempt,
    transaction: &mut Transaction<'_, Postgres>,
    checked: &super::database::Checked,
    seen: &Seen,
    ending: LocalEnding,
) -> Result<LocalWrites, TransactionResult> {
    let (writes, record) = ended(command, attempt, ending, row).map_err(|error| match error {
        Error::StaleSnapshot => TransactionResult::Again(error),
        error => TransactionResult::Failed(error),
    })?;
    match command.timeouts().bounded(write(transaction, checked, seen, &writes, record)).await {
        Some(Ok(())) => Ok(writes),
        Some(Err(WriteFailure::Conflict)) => Err(TransactionResult::Again(Error::StaleSnapshot)),
        Some(Err(WriteFailure::Left)) => {
            command.unfinished(attempt, true);
            Err(TransactionResult::Failed(Error::TransactionLeft(attempt.local().operation_id)))
        }
        Some(Err(WriteFailure::Failed(error))) => Err(TransactionResult::Failed(error)),
        None => Err(TransactionResult::Failed(timed_out())),
    }
}

fn row(writes: &LocalWrites) -> Result<RecordWrite, semel_core::store::Error> {
    RecordWrite::of(writes.id, &writes.write)
}

/// Ends the session of this transaction, from another connection. Best effort: it ends by itself after its
/// statement.
async fn end_session(pool: &PgPool, seen: &Seen, timeouts: &DatabaseTimeouts) {
    let ending = async {
        let mut connection = BorrowedConnection::from(pool).await?;
        let ending = sqlx::query(TransactionStatements::END_SESSION).bind(seen.process).bind(seen.mark);
        ending.execute(connection.get()).await.map_err(Error::Database)?;
        connection.keep();
        Ok::<_, Error>(())
    };
    drop(timeouts.bounded(ending).await);
}

/// Whether the transaction is known to be over, so that its connection can be used again.
pub(super) async fn roll_back(timeouts: &DatabaseTimeouts, transaction: Transaction<'_, Postgres>) -> bool {
    matches!(timeouts.bounded(transaction.rollback()).await, Some(Ok(())))
}
