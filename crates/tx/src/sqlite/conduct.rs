//! The course of a local command: look, run in a batch of the store; again where that may help.

use super::Work;
use super::database::Database;
use crate::error::{BoxError, Error};
use rusqlite::Connection;
use semel::local::{
    LocalAttempt, LocalCommand, LocalEnding, LocalJudgement, LocalWrites, Unwritable, inside_work,
    without_body,
};
use semel::{Answer, SPANS};
use semel_core::machine::Found;
use semel_core::store::{self, Change, Kind, Reading};
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
    ended: Result<Box<LocalWrites>, NotEnded>,
}

/// Why a run came to no writes.
enum NotEnded {
    NotRun,
    Work(BoxError),
    Unwritable(Unwritable),
    Unfit(store::Error),
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
    let in_work = InWork { command, attempt, ended: Err(NotEnded::NotRun) };
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
        Ok(outcome) => in_work.told(outcome),
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
        self.ended = Err(NotEnded::NotRun);
        let ending = match inside_work(|| work(connection, self.attempt.local())) {
            Ok(ending) => ending,
            Err(error) => {
                self.ended = Err(NotEnded::Work(error));
                return Step::Undo;
            }
        };
        let is_refusal = matches!(ending, LocalEnding::Refused(_));
        match self.end(ending) {
            Ok((writes, puts)) => {
                self.ended = Ok(Box::new(writes));
                if is_refusal { Step::Replace(puts) } else { Step::Keep(puts) }
            }
            Err(not_ended) => {
                self.ended = Err(not_ended);
                Step::Undo
            }
        }
    }

    fn end(&self, mut ending: LocalEnding) -> Result<(LocalWrites, Vec<Put>), NotEnded> {
        loop {
            let writes = self.command.end(&self.attempt, ending.clone()).map_err(NotEnded::Unwritable)?;
            match puts(&writes) {
                Ok(puts) => return Ok((writes, puts)),
                Err(error) if error.kind() == Kind::TooLarge => {
                    ending = without_body(ending).ok_or(NotEnded::Unfit(error))?;
                }
                Err(error) => return Err(NotEnded::Unfit(error)),
            }
        }
    }

    fn told(self, outcome: WorkOutcome) -> Tried {
        let operation_id = self.attempt.local().operation_id;
        let error = match outcome {
            WorkOutcome::Committed(_) => {
                let Self { command, attempt, ended } = self;
                return match ended {
                    Ok(writes) => Tried::Done(Ok(command.committed(attempt, *writes))),
                    Err(_) => Tried::Done(Err(Error::Store(store::Error::new(
                        Kind::Unfit,
                        "ending a local command that was not run",
                    )))),
                };
            }
            WorkOutcome::Conflict => return self.again(),
            WorkOutcome::Undone => match self.ended {
                Err(NotEnded::Work(error)) => Error::Work(error),
                Err(NotEnded::Unwritable(Unwritable::Stale)) => {
                    self.command.rolled_back(self.attempt);
                    return Tried::Again(self.command, Error::StaleSnapshot);
                }
                Err(NotEnded::Unwritable(Unwritable::Clock)) => Error::ClockNotTrusted,
                Err(NotEnded::Unwritable(Unwritable::Refused(refusal))) => {
                    Error::Store(store::Error::new(Kind::Unfit, "ending a local command").because(refusal))
                }
                Err(NotEnded::Unfit(error)) => Error::Store(error),
                Ok(_) | Err(NotEnded::NotRun) => Error::StaleSnapshot,
            },
            WorkOutcome::Panicked => {
                self.command.panicked(&self.attempt);
                Error::Panicked
            }
            WorkOutcome::Overran => {
                self.command.overran(&self.attempt);
                Error::Overran
            }
            WorkOutcome::RolledBack => {
                self.command.unfinished(&self.attempt, false);
                Error::TransactionEnded(operation_id)
            }
            WorkOutcome::Violated(why) => Error::Violated(why),
            _ => Error::StaleSnapshot,
        };
        self.command.rolled_back(self.attempt);
        Tried::Done(Err(error))
    }

    fn again(self) -> Tried {
        self.command.rolled_back(self.attempt);
        Tried::Again(self.command, Error::StaleSnapshot)
    }

    fn undone(self, error: Error) -> Tried {
        self.command.rolled_back(self.attempt);
        Tried::Done(Err(error))
    }

    /// Finds out what became of a batch that the disk may or may not have. The work is not run again.
    async fn settle(self, cause: store::Error) -> Result<Answer, Error> {
        let Self { command, attempt, ended } = self;
        let operation_id = attempt.local().operation_id;
        if let (Ok(writes), Ok(look)) = (ended, command.look().await) {
            let is_arbiter = writes.id == command.arbiter();
            let reading = if is_arbiter { Some(&look.arbiter) } else { look.moved_to.as_ref() };
            if writes.landed(reading.map_or(Found::Nothing, Reading::found)) {
                return Ok(command.committed(attempt, *writes));
            }
        }
        // That it is not there is no proof: the log may have it, and a crash bring it back.
        command.commit_in_doubt(&attempt);
        Err(Error::CommitInDoubt { operation_id, source: Box::new(cause) })
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
