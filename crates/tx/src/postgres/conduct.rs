//! The course of a local command: look, run, write, commit; again where that may help.

use super::Work;
use super::database::Database;
use super::lent::Lent;
use super::look::{Seen, look};
use super::timed_out;
use super::write::{RecordWrite, server_error, write};
use crate::ending::{Written, ended};
use crate::error::{BoxError, Error};
use crate::hand::{Committed, Unwritten, commit};
use futures_util::FutureExt as _;
use semel::Answer;
use semel::SPANS;
use semel::local::{
    Interrupted, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, Patience,
};
use semel_core::outcome::Outcome;
use semel_sql::postgres::transaction::{ServerError, TransactionStatements};
use sqlx::{Connection as _, PgPool, Postgres, Transaction};
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tracing::Instrument as _;

/// How often the work is run again before the last error is handed out.
const RERUNS_MAX: u32 = 10;

/// What one transaction came to.
enum Tried {
    Committed(LocalAttempt, LocalWrites),
    Answered(Answer),
    /// The work refuses: that is to be committed alone.
    Refuses(Outcome),
    /// Somebody else has the lock.
    Wait,
    /// Rolled back, and worth another try.
    Again(Error),
    /// Rolled back.
    Failed(Error),
    /// Nobody knows whether it committed.
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
) -> Result<Answer, Error> {
    let (mut refusal, mut reruns) = (None, 0);
    loop {
        match Box::pin(try_once(&mut command, &database, &work, refusal.as_ref())).await {
            Tried::Committed(attempt, writes) => return Ok(command.committed(attempt, writes)),
            Tried::Answered(answer) => return Ok(answer),
            Tried::Refuses(outcome) => refusal = Some(outcome),
            Tried::Wait => {
                let waits = command.pause().instrument(tracing::trace_span!(target: SPANS, "wait")).await;
                if !waits {
                    return Ok(command.in_progress());
                }
            }
            Tried::Again(error) if reruns == RERUNS_MAX => return Err(error),
            Tried::Again(_) => {
                reruns += 1;
                command.back_off().await;
            }
            Tried::Failed(error) => return Err(error),
            Tried::InDoubt(InDoubt { attempt, writes, written_at, seen, cause }) => {
                let written = Written { command, attempt, writes, since: written_at };
                return Box::pin(written.settle::<Postgres>(&database, &seen, cause)).await;
            }
        }
    }
}

/// Whether a commit that did not happen is tried again.
fn not_committed(error: Error) -> Tried {
    let is_in_the_way = match &error {
        Error::CommitTooLate => true,
        Error::Database(cause) => server_error(cause) == Some(ServerError::InTheWay),
        _ => false,
    };
    if is_in_the_way { Tried::Again(error) } else { Tried::Failed(error) }
}

async fn try_once(
    command: &mut LocalCommand,
    database: &Database,
    work: &Work,
    refusal: Option<&Outcome>,
) -> Tried {
    let checked = match database.checked() {
        Ok(checked) => checked,
        Err(error) => return Tried::Failed(error),
    };
    if let Err(error) = command.refresh() {
        return Tried::Failed(Error::Engine(error));
    }
    let mut connection = match Lent::from(&database.pool).await {
        Ok(connection) => connection,
        Err(error) => return Tried::Failed(error),
    };
    let patience = command.patience();
    let begin = connection.get().begin_with(database.isolation.begin());
    let mut transaction = match patience.bounded(begin).await {
        Some(Ok(transaction)) => transaction,
        Some(Err(error)) => return Tried::Failed(Error::Database(error)),
        None => return Tried::Failed(timed_out()),
    };
    let claim = tracing::trace_span!(target: SPANS, "claim");
    let looked = look(&mut transaction, checked, command.ids(), &patience).instrument(claim).await;
    let (seen, judged) = match looked {
        Ok((look, seen)) => (seen, command.judge(look).await.map_err(Error::Engine)),
        Err(error) => return Tried::Failed(error),
    };
    let attempt = match judged {
        Ok(LocalJudgement::Run(attempt)) => attempt,
        other => {
            if roll_back(&patience, transaction).await {
                connection.keep();
            }
            return match other {
                Ok(LocalJudgement::Answered(answer)) => Tried::Answered(answer),
                Ok(LocalJudgement::Again) => Tried::Again(Error::StaleSnapshot),
                Ok(LocalJudgement::Wait | LocalJudgement::Run(_)) => Tried::Wait,
                Err(error) => Tried::Failed(error),
            };
        }
    };
    let worked = match refusal {
        Some(outcome) => Ok(LocalEnding::Refused(outcome.clone())),
        None => run(command, &attempt, &mut transaction, work).await,
    };
    let ending = match worked {
        // Its own writes go first: the refusal is committed by a transaction that holds nothing else.
        Ok(LocalEnding::Refused(outcome)) if refusal.is_none() => Err(Tried::Refuses(outcome)),
        Ok(ending) => Ok(ending),
        Err(tried) => Err(tried),
    };
    let written_at = patience.uptime();
    let writes = match ending {
        Ok(ending) => {
            let finish = tracing::trace_span!(target: SPANS, "finish");
            end(command, &attempt, &mut transaction, checked, &seen, ending).instrument(finish).await
        }
        Err(tried) => Err(tried),
    };
    match writes {
        Ok(writes) => {
            let unanswered = command.committing(&writes);
            match commit::<Postgres>(&patience, unanswered, transaction.commit(), written_at).await {
                // A nested transaction that the work left open was ended in the place of the whole. Closing rolls that back.
                Committed::Yes if connection.get().is_in_transaction() => {
                    let operation_id = attempt.local().operation_id;
                    command.unfinished(&attempt, false);
                    command.rolled_back(attempt);
                    Tried::Failed(Error::TransactionLeft(operation_id))
                }
                Committed::Yes => {
                    connection.keep();
                    Tried::Committed(attempt, writes)
                }
                Committed::No(error) => {
                    command.rolled_back(attempt);
                    not_committed(error)
                }
                // The connection is closed.
                Committed::Unknown(cause) => {
                    Tried::InDoubt(InDoubt { attempt, writes, written_at, seen, cause })
                }
            }
        }
        Err(tried) => {
            let is_idle = !matches!(&tried, Tried::Failed(Error::Overran | Error::Closing | Error::Panicked));
            let is_over = if is_idle {
                roll_back(&patience, transaction).await
            } else {
                drop(transaction);
                false
            };
            if is_over {
                connection.keep();
            } else {
                // A statement may still run there. The server would notice a closed connection only after it.
                drop(connection);
                end_session(&database.pool, &seen, &patience).await;
            }
            command.rolled_back(attempt);
            tried
        }
    }
}

/// Runs the work.
async fn run(
    command: &LocalCommand,
    attempt: &LocalAttempt,
    transaction: &mut Transaction<'_, Postgres>,
    work: &Work,
) -> Result<LocalEnding, Tried> {
    let running = AssertUnwindSafe(async { work(&mut *transaction, attempt.local()).await }).catch_unwind();
    match command.until_interrupted(attempt, running).await {
        Ok(Ok(Ok(ending))) => Ok(ending),
        Ok(Ok(Err(error))) if in_the_way(&*error) => Err(Tried::Again(Error::Work(error))),
        Ok(Ok(Err(error))) => Err(Tried::Failed(Error::Work(error))),
        Ok(Err(_)) => {
            command.panicked(attempt);
            Err(Tried::Failed(Error::Panicked))
        }
        Err(Interrupted::Overran) => Err(Tried::Failed(Error::Overran)),
        Err(Interrupted::Closing) => Err(Tried::Failed(Error::Closing)),
    }
}

/// Whether the work failed because another transaction was in its way.
fn in_the_way(error: &(dyn std::error::Error + 'static)) -> bool {
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
) -> Result<LocalWrites, Tried> {
    let (writes, record) = ended(command, attempt, ending, row).map_err(|error| match error {
        Error::StaleSnapshot => Tried::Again(error),
        error => Tried::Failed(error),
    })?;
    match command.patience().bounded(write(transaction, checked, seen, &writes, record)).await {
        Some(Ok(())) => Ok(writes),
        Some(Err(Unwritten::Conflict)) => Err(Tried::Again(Error::StaleSnapshot)),
        Some(Err(Unwritten::Left)) => {
            command.unfinished(attempt, true);
            Err(Tried::Failed(Error::TransactionLeft(attempt.local().operation_id)))
        }
        Some(Err(Unwritten::Failed(error))) => Err(Tried::Failed(error)),
        None => Err(Tried::Failed(timed_out())),
    }
}

fn row(writes: &LocalWrites) -> Result<RecordWrite, semel_core::store::Error> {
    RecordWrite::of(writes.id, &writes.write)
}

/// Ends the session whose transaction this was, from another connection. Best effort: it ends by itself after its statement.
async fn end_session(pool: &PgPool, seen: &Seen, patience: &Patience) {
    let ending = async {
        let mut connection = Lent::from(pool).await?;
        let ending = sqlx::query(TransactionStatements::END_SESSION).bind(seen.process).bind(seen.mark);
        ending.execute(connection.get()).await.map_err(Error::Database)?;
        connection.keep();
        Ok::<_, Error>(())
    };
    drop(patience.bounded(ending).await);
}

/// Whether the transaction is known to be over, so that its connection can be used again.
pub(super) async fn roll_back(patience: &Patience, transaction: Transaction<'_, Postgres>) -> bool {
    matches!(patience.bounded(transaction.rollback()).await, Some(Ok(())))
}
