//! The course of a local command: look, run, write, commit; again where that may help.

use super::Work;
use super::database::Database;
use super::lent::Lent;
use super::look::{Seen, look};
use super::settle::settle;
use super::write::{RecordWrite, Unwritten, server_error, write};
use crate::ending::ended;
use crate::error::{BoxError, Error};
use futures_util::FutureExt as _;
use semel::Answer;
use semel::SPANS;
use semel::local::{
    Interrupted, LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, Patience, Unanswered,
};
use semel_core::outcome::Outcome;
use semel_sql::postgres::transaction::ServerError;
use sqlx::{Connection as _, Postgres, Transaction};
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
    InDoubt(LocalAttempt, LocalWrites, Seen, BoxError),
}

pub(super) async fn conduct(
    mut command: LocalCommand,
    database: Database,
    work: Work,
) -> Result<Answer, Error> {
    let (mut refusal, mut reruns) = (None, 0);
    loop {
        match try_once(&mut command, &database, &work, refusal.as_ref()).await {
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
            Tried::InDoubt(attempt, writes, seen, cause) => {
                return Box::pin(settle(command, &database, &seen, attempt, writes, cause)).await;
            }
        }
    }
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
        None => return Tried::Failed(Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))),
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
    let ending_at = patience.uptime();
    let writes = match ending {
        Ok(ending) => {
            let finish = tracing::trace_span!(target: SPANS, "finish");
            end(command, &attempt, &mut transaction, checked, &seen, ending).instrument(finish).await
        }
        Err(tried) => Err(tried),
    };
    match writes {
        Ok(writes) => {
            match commit(&patience, command.committing(&writes), transaction.commit(), ending_at).await {
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
                    match server_error(&error) {
                        Some(ServerError::InTheWay) => Tried::Again(Error::Database(error)),
                        _ => Tried::Failed(Error::Database(error)),
                    }
                }
                // The connection is closed.
                Committed::Unknown(cause) => Tried::InDoubt(attempt, writes, seen, cause),
            }
        }
        Err(tried) => {
            let is_idle = !matches!(&tried, Tried::Failed(Error::Overran | Error::Closing | Error::Panicked));
            // A statement may still run on a connection whose work was given up: closing it rolls back.
            if is_idle && roll_back(&patience, transaction).await {
                connection.keep();
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
    let (writes, record) =
        ended(command, attempt, ending, RecordWrite::of_local).map_err(|error| match error {
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
        None => Err(Tried::Failed(Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))),
    }
}

pub(super) enum Committed {
    Yes,
    /// The server says that it was rolled back.
    No(sqlx::Error),
    Unknown(BoxError),
}

/// What came of a commit. From `ending_at`, when the last write was begun, until its answer passes no more than the store's timeout:
/// a change of the hashing secret waits for longer than that.
pub(super) async fn commit<T>(
    patience: &Patience,
    unanswered: Unanswered,
    committing: impl Future<Output = Result<T, sqlx::Error>>,
    ending_at: Duration,
) -> Committed {
    let left = patience.store_timeout().saturating_sub(patience.uptime().saturating_sub(ending_at));
    match patience.within(left, committing).await {
        Some(Ok(_)) => {
            unanswered.answered();
            Committed::Yes
        }
        Some(Err(error)) => match server_error(&error) {
            None | Some(ServerError::Ambiguous) => Committed::Unknown(error.into()),
            Some(_) => {
                unanswered.answered();
                Committed::No(error)
            }
        },
        None => Committed::Unknown("the server did not answer in time".into()),
    }
}

/// Whether the transaction is known to be over, so that its connection can be used again.
pub(super) async fn roll_back(patience: &Patience, transaction: Transaction<'_, Postgres>) -> bool {
    matches!(patience.bounded(transaction.rollback()).await, Some(Ok(())))
}
