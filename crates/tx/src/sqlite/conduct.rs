//! The course of a local command: look, run in a batch of the store; again where that may help.

use super::Work;
use super::database::Database;
use crate::ending::ended;
use crate::error::Error;
use rusqlite::Connection;
use semel::local::{LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, inside_work};
use semel::{Answer, SPANS};
use semel_core::id::OperationId;
use semel_core::store::{self, Change, Kind};
use semel_sql::sqlite::{Put, Step, WorkOutcome};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tracing::Instrument as _;

/// How often the command is looked at again before the last error is handed out.
const RERUNS_MAX: u32 = 10;

/// A command while the thread that writes has it. Taken out once that has answered.
struct InWork {
    command: LocalCommand,
    attempt: LocalAttempt,
    /// What the last run came to.
    ended: Result<Box<LocalWrites>, Error>,
}

/// What one batch came to.
enum Tried {
    Done(Result<Answer, Error>),
    Again(LocalCommand, Error),
}

pub(super) async fn conduct(
    mut command: LocalCommand,
    database: Database,
    work: Work,
) -> Result<Answer, Error> {
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
                    Tried::Done(result) => return result,
                    Tried::Again(again, error) => {
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

async fn try_once(command: LocalCommand, attempt: LocalAttempt, database: &Database, work: &Work) -> Tried {
    let (operation_id, patience) = (attempt.local().operation_id, command.patience());
    let (expects, deadline) = (attempt.expects(), attempt.work_deadline());
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
    // As long as work may take, and the disk after it. A batch that hangs keeps the command: twins wait for it.
    let answered = patience.within(deadline.saturating_add(patience.store_timeout()), running).await;
    let Some(answered) = answered else {
        let source = "the disk, or others' work, did not end in time".into();
        return Tried::Done(Err(Error::CommitInDoubt { operation_id, source }));
    };
    // Not while the thread may still be at it: it has answered, or will never come to it.
    let Some(in_work) = lock(&shared).take() else {
        let gone = store::Error::new(Kind::Unfit, "ending a local command twice");
        return Tried::Done(Err(Error::Store(gone)));
    };
    match answered {
        Ok(outcome) => in_work.told(&outcome),
        Err(error) if error.is_ambiguous() => Tried::Done(in_work.settle(error).await),
        Err(error) => in_work.undone(Error::Store(error)),
    }
}

fn lock(shared: &Mutex<Option<InWork>>) -> MutexGuard<'_, Option<InWork>> {
    // Work that panics leaves what it was handed whole.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InWork {
    /// Runs the work. May come again, if a neighbour has spoilt the batch.
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

    fn told(self, outcome: &WorkOutcome) -> Tried {
        match &outcome {
            WorkOutcome::Committed(_) => {
                let Self { command, attempt, ended } = self;
                return Tried::Done(ended.map(|writes| command.committed(attempt, *writes)));
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
            Error::StaleSnapshot => Tried::Again(command, error),
            error => Tried::Done(Err(error)),
        }
    }

    fn undone(self, error: Error) -> Tried {
        self.command.rolled_back(self.attempt);
        Tried::Done(Err(error))
    }

    /// Finds out what became of a batch that the disk may or may not have. The work is not run again.
    async fn settle(self, cause: store::Error) -> Result<Answer, Error> {
        let Self { command, attempt, ended } = self;
        let operation_id = attempt.local().operation_id;
        if let Ok(writes) = ended
            && command.has_landed(&writes).await
        {
            return Ok(command.committed(attempt, *writes));
        }
        // That it is not there is no proof: the log may have it, and a crash bring it back.
        command.commit_in_doubt(&attempt);
        Err(Error::CommitInDoubt { operation_id, source: Box::new(cause) })
    }
}

/// Why work in a batch was not committed. `failed`: what it failed with itself.
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
