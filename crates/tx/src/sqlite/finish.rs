//! Stores the outcome of an attempt with an external effect, in one group commit with the change that follows
//! from it.

use super::conduct::not_committed;
use super::database::Database;
use crate::ending::finished;
use crate::error::{BoxError, Error};
use rusqlite::Connection;
use semel::local::{LocalEnding, inside_work};
use semel::{Attempt, Engine, Finishing};
use semel_core::machine::Expect;
use semel_core::store::{Change, Reading};
use semel_sql::sqlite::{Put, Step, WorkOutcome};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// An attempt while the writer thread has it.
struct InWork {
    finishing: Finishing,
    reading: Reading,
    asked: Duration,
    /// The error of the last run.
    failed: Option<Error>,
}

/// Stores the ending of an `external` or `downstream` attempt together with the application's resulting
/// change: the card is charged, then the order is `PAID`. Call it from the attempt's own work, after the
/// effect.
///
/// `work` makes the change and returns the ending. It runs on the store's writer thread, under the rules of
/// [`transact`](super::transact): it may run several times, and must have no other effect. Its change is kept
/// for a success and for a refusal. From the commit on the attempt has this ending, whatever its own work
/// returns.
///
/// On an error the change is undone and the work still owns the attempt: it may try again. If it gives up, it
/// ends in doubt (`Ending::InDoubt`): the effect happened, and the change did not. After [`Error::Overtaken`]
/// there is nothing to try again: the attempt was settled by someone else. After [`Error::CommitInDoubt`] end
/// the attempt in doubt: if the change is in the file, its outcome counts.
///
/// Until this returns the attempt's lease is not renewed.
pub async fn finish_in<W>(
    engine: &Engine,
    database: &Database,
    attempt: &Attempt,
    work: W,
) -> Result<(), Error>
where
    W: Fn(&Connection) -> Result<LocalEnding, BoxError> + Send + 'static,
{
    database.check(engine).await?;
    let finishing = attempt.finishing().await;
    let (reading, asked) = finishing.look().await?;
    let (id, timeouts, operation_id) = (finishing.id(), finishing.timeouts(), finishing.operation_id());
    let record = reading.record().ok_or(Error::Overtaken(operation_id))?;
    let expects = [(id, Expect::unchanged(record))];
    let shared = Arc::new(Mutex::new(Some(InWork { finishing, reading, asked, failed: None })));
    let running = {
        let shared = Arc::clone(&shared);
        let step = move |connection: &Connection| match &mut *lock(&shared) {
            Some(in_work) => in_work.run(connection, &work),
            None => Step::Undo,
        };
        database.store.run_in_batch(expects, database.limit, step)
    };
    let answered = timeouts.within(database.limit.saturating_add(timeouts.store_timeout()), running).await;
    let in_doubt = |source| Err(Error::CommitInDoubt { operation_id, source });
    let Some(answered) = answered else {
        // A batch that hangs keeps the attempt: nothing else of it is written meanwhile.
        return in_doubt("the disk, or others' work, did not end in time".into());
    };
    // The thread no longer uses it: it has answered, or will never run it.
    let Some(InWork { finishing, failed, .. }) = lock(&shared).take() else {
        return in_doubt("it was ended twice".into());
    };
    match answered {
        Ok(WorkOutcome::Committed(_)) => finishing.committed(),
        Ok(outcome) => return Err(not_committed(&outcome, failed, operation_id)),
        Err(error) if error.is_ambiguous() => {
            if !finishing.was_applied().await {
                return in_doubt(Box::new(error));
            }
            finishing.committed();
        }
        Err(error) => return Err(Error::Store(error)),
    }
    Ok(())
}

fn lock(shared: &Mutex<Option<InWork>>) -> MutexGuard<'_, Option<InWork>> {
    // A panic in the work leaves this state intact.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl InWork {
    /// Runs the work. May be repeated, if other work has broken the batch.
    fn run(
        &mut self,
        connection: &Connection,
        work: &impl Fn(&Connection) -> Result<LocalEnding, BoxError>,
    ) -> Step {
        self.failed = None;
        let ending = inside_work(|| work(connection)).map_err(Error::Work);
        let looked = (&self.reading, self.asked);
        let put = ending.and_then(|ending| {
            finished(&mut self.finishing, ending, looked, |id, write| Put::of(id, Change::from(write)))
        });
        match put {
            Ok(put) => Step::Keep(vec![put]),
            Err(error) => {
                self.failed = Some(error);
                Step::Undo
            }
        }
    }
}
