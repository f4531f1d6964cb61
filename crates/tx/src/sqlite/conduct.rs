//! The course of a local command: look up, run in a batch of the store; repeated if that may help.

use super::Work;
use super::database::Database;
use crate::ending::ended;
use crate::error::Error;
use rusqlite::Connection;
use semel::local::{LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, inside_work};
use semel::{ExecuteResponse, SPANS};
use semel_core::id::OperationId;
use semel_core::store::{self, Change, Kind};
use semel_sql::sqlite::{Put, Step, WorkOutcome};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::Instrument as _;

/// How often the command is looked up again before the last error is returned.
const RERUNS_MAX: u32 = 10;

/// A command while the writer thread has it. Taken out after its answer.
struct InWork {
    command: LocalCommand,
    attempt: LocalAttempt,
    /// The result of the last run.
    ended: Result<Box<LocalWrites>, Error>,
}

/// The result of one batch.
enum BatchRun {
    Done(Result<ExecuteResponse, Error>),
    Again(LocalCommand, Error),
}

pub(super) async fn conduct(
    mut command: LocalCommand,
    database: Database,
    work: Work,
) -> Result<ExecuteResponse, Error> {
    let mut reruns = 0;
    loop {
        command.refresh()?;
        let looking = command.look().instrument(tracing::trace_span!(target: SPANS, "claim"));
        let look = looking.await?;
        let error = match command.judge(look).await? {
            LocalJudgement::Answered(answer) => return Ok(answer),
            LocalJudgement::Run(attempt) => {
                let trying = try_once(command, attempt, &database, &work);
                match trying.instrument(tracing::trace_span!(target: SPANS, "finish")).await {
                    BatchRun::Done(result) => return result,
                    BatchRun::Again(again, error) => {
                        command = again;
                        error
                    }
                }
            }
            LocalJudgement::Again => Error::StaleSnapshot,
            LocalJudgement::Wait => {
                let waits = command.pause().instrument(tracing::trace_span!(target: SPANS, "wait")).await;
                if !waits {
                    return Ok(command.in_progress());
                }
                continue;
            }
        };
        if reruns == RERUNS_MAX {
            return Err(error);
        }
        reruns += 1;
        command.back_off().await;
    }
}

async fn try_once(
    command: LocalCommand,
    attempt: LocalAttempt,
    database: &Database,
    work: &Work,
) -> BatchRun {
    let (operation_id, timeouts) = (attempt.local().operation_id, command.timeouts());
    let (expects, deadline) = (attempt.expects(), attempt.work_deadline());
    let unanswered = command.running_elsewhere();
    let in_work = InWork { command, attempt, ended: Err(Error::StaleSnapshot) };
    let shared = Arc::new(Mutex::new(Some(in_work)));
    let running = {
        let (shared, work) = (Arc::clone(&shared), Arc::clone(work));
        let step = move |connection: &Connection| match &mut *lock(&shared) {
            Some(in_work) => in_work.run(connection, &work),
            None => Step::Undo,
        };
        database.store.run_in_batch(expects, database.limit.min(deadline), step)
    };
    // As long as work may take, and the disk after it. A batch that hangs keeps the command: duplicates wait
    // for it.
    let answered = timeouts.within(deadline.saturating_add(timeouts.store_timeout()), running).await;
    let Some(answered) = answered else {
        let source = "the disk, or others' work, did not end in time".into();
        return BatchRun::Done(Err(Error::CommitInDoubt { operation_id, source }));
    };
    unanswered.answered();
    // The thread no longer uses it: it has answered, or will never run it.
    let Some(in_work) = lock(&shared).take() else {
        let gone = store::Error::new(Kind::Unfit, "ending a local command twice");
        return BatchRun::Done(Err(Error::Store(gone)));
    };
    match answered {
        Ok(outcome) => in_work.finish(&outcome),
        Err(error) if error.is_ambiguous() => BatchRun::Done(in_work.settle(error).await),
        Err(error) => in_work.undone(Error::Store(error)),
    }
}

fn lock(shared: &Mutex<Option<InWork>>) -> MutexGuard<'_, Option<InWork>> {
    // A panic in the work leaves this state intact.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InWork {
    /// Runs the work. May be repeated, if other work has broken the batch.
    fn run(&mut self, connection: &Connection, work: &Work) -> Step {
        let (ended, step) = match self.try_run(connection, work) {
            Ok((writes, step)) => (Ok(Box::new(writes)), step),
            Err(error) => (Err(error), Step::Undo),
        };
        self.ended = ended;
        step
    }

    fn try_run(&self, connection: &Connection, work: &Work) -> Result<(LocalWrites, Step), Error> {
        let ending = inside_work(|| work(connection, self.attempt.local())).map_err(Error::Work)?;
        let is_refusal = matches!(ending, LocalEnding::Refused(_));
        let (writes, puts) = ended(&self.command, &self.attempt, ending, puts)?;
        Ok((writes, if is_refusal { Step::Replace(puts) } else { Step::Keep(puts) }))
    }

    fn finish(self, outcome: &WorkOutcome) -> BatchRun {
        match &outcome {
            WorkOutcome::Committed(_) => {
                let Self { command, attempt, ended } = self;
                return BatchRun::Done(ended.map(|writes| command.committed(attempt, *writes)));
            }
            WorkOutcome::Panicked => self.command.panicked(&self.attempt),
            WorkOutcome::Overran => self.command.overran(&self.attempt),
            WorkOutcome::RolledBack => self.command.unfinished(&self.attempt, false),
            _ => {}
        }
        let Self { command, attempt, ended } = self;
        let error = not_committed(outcome, ended.err(), attempt.local().operation_id);
        command.rolled_back(attempt);
        match error {
            Error::StaleSnapshot => BatchRun::Again(command, error),
            error => BatchRun::Done(Err(error)),
        }
    }

    fn undone(self, error: Error) -> BatchRun {
        self.command.rolled_back(self.attempt);
        BatchRun::Done(Err(error))
    }

    /// Settles a batch that may or may not be on the disk. The work is not run again.
    async fn settle(self, cause: store::Error) -> Result<ExecuteResponse, Error> {
        let Self { command, attempt, ended } = self;
        let operation_id = attempt.local().operation_id;
        if let Ok(writes) = ended
            && command.was_applied(&writes).await
        {
            return Ok(command.committed(attempt, *writes));
        }
        // Its absence proves nothing: the log may have it, and a crash may restore it.
        command.commit_in_doubt(&attempt);
        Err(Error::CommitInDoubt { operation_id, source: Box::new(cause) })
    }
}

/// Why work in a batch was not committed. `failed` is its own error.
pub(super) fn not_committed(
    outcome: &WorkOutcome,
    failed: Option<Error>,
    operation_id: OperationId,
) -> Error {
    match outcome {
        WorkOutcome::Panicked => Error::Panicked,
        WorkOutcome::Overran => Error::Overran,
        WorkOutcome::RolledBack => Error::TransactionEnded(operation_id),
        WorkOutcome::Violated => Error::Violated,
        WorkOutcome::Undone => failed.unwrap_or(Error::StaleSnapshot),
        _ => Error::StaleSnapshot,
    }
}

fn puts(writes: &LocalWrites) -> Result<Vec<Put>, store::Error> {
    let mut puts = Vec::with_capacity(1);
    if let Some(marker) = writes.marker {
        if let Some(unchanged) = marker.removes {
            puts.push(Put::of(marker.id, Change::Remove(unchanged))?);
        }
        puts.push(Put::of(marker.id, Change::InsertMarker)?);
    }
    puts.push(Put::of(writes.id, Change::from(&writes.write))?);
    Ok(puts)
}
