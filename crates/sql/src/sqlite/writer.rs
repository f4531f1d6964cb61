//! The writer's thread.
//!
//! Contents: group commit. Writes that arrive while a batch is being synced form the next batch: one
//! transaction, one sync, then all callers are answered. A single write does not wait for others. No answer
//! is sent before the commit and the check after it. Encoding is left to the calling tasks.

use super::answers;
use super::brackets::Brackets;
use super::checkpoint::CheckpointState;
use super::fault::Fault;
use super::files::OpenFiles;
use super::guard::Guard;
use super::local::{WorkEffect, WorkOutcome};
use super::open::limit_write_waits;
use super::queue::Queue;
use super::row_writer::RowWriter;
use super::violations::Violations;
use super::write::{Job, Work, WriteAnswer};
use crate::clock;
use rusqlite::Connection;
use semel_core::store::{Clock, Kind};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

const BATCH_COUNT_MAX: usize = 1024;
/// The most bytes in one batch; the changed pages are kept in memory until the commit.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// A batch of this size indicates steady load: the answered callers will send their next write in a moment,
/// and a commit costs the same for one as for all. Smaller batches do not wait.
const STEADY_BATCH_MIN: usize = 8;
/// How long a smaller batch waits for more writes under steady load.
const LINGER_TIME: Duration = Duration::from_micros(200);
/// One damaged page fails the writes that touch it, not the whole batch; after this many, give up.
const OFFENDERS_MAX: usize = 8;
/// How long the application's own work in one batch may take in total, because the whole batch waits for it.
const WORK_MAX: Duration = Duration::from_millis(250);
const WRITING: &str = "writing to the SQLite store";

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) queue: Arc<Queue<Job>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) checkpoints: Arc<CheckpointState>,
    pub(super) files: Arc<OpenFiles>,
}

/// Why a batch was not written.
enum Failure {
    /// One write failed; the rest can be tried without it.
    Offender(usize, Fault),
    All(Fault),
    /// The same, and the connection is stuck in its transaction.
    Stuck(Fault),
    /// This work broke the transaction. It was rolled back, and the rest can be written without it.
    Spoilt(usize, WorkOutcome),
}

impl Writer {
    /// Runs until the queue is closed and empty. `ready` is called once, when writing can begin.
    pub(super) fn run(self, ready: impl FnOnce(rusqlite::Result<()>)) {
        let Self { connection, queue, clock, checkpoints, files } = self;
        // Dropped last: the queue must be closed before the writer's end is noticed.
        let mut batch = Vec::new();
        // No caller may wait for this thread after it has ended, not even after a panic.
        let _guard = AbandonOnDrop(&queue);
        let mut writer = match BatchWriter::new(&connection, clock, files) {
            Ok(writer) => writer,
            Err(error) => return ready(Err(error)),
        };
        if let Err(error) = limit_write_waits(&connection) {
            return ready(Err(error));
        }
        ready(Ok(()));
        let mut company = 0;
        while queue.gather(&mut batch, BATCH_COUNT_MAX, BATCH_BYTES_MAX, Job::weight) {
            if company >= STEADY_BATCH_MIN && batch.len() < company {
                queue.linger(LINGER_TIME, company - batch.len());
                queue.gather_more(&mut batch, BATCH_COUNT_MAX, BATCH_BYTES_MAX, Job::weight);
            }
            company = batch.len().max(company - company / 4);
            batch.retain(Job::is_awaited);
            if !serve(&mut writer, &mut batch) {
                return;
            }
            checkpoints.wrote();
            checkpoints.keep_log_short(&connection);
        }
    }
}

/// The result of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// All callers are answered.
    All,
    /// One write breaks the transaction for the others, and it is not known which: write the remaining ones
    /// separately.
    Apart,
    /// All callers are answered, and the connection is unusable.
    Stuck,
}

/// Writes a batch and answers its callers. `false` if the connection is unusable.
fn serve(writer: &mut BatchWriter<'_>, batch: &mut Vec<Job>) -> bool {
    match write_together(writer, batch) {
        Served::All => return true,
        Served::Stuck => return false,
        Served::Apart => {}
    }
    // The store's own writes together, and each piece of application work alone, so that it cannot affect
    // others.
    let (works, mut others): (Vec<_>, Vec<_>) = batch.drain(..).partition(Job::is_local);
    let mut is_stuck = write_together(writer, &mut others) == Served::Stuck;
    for work in works {
        batch.push(work);
        is_stuck = is_stuck || write_together(writer, batch) == Served::Stuck;
    }
    !is_stuck
}

fn broken_transaction() -> Fault {
    Fault::new(Kind::Unavailable, WRITING, "the store's own writes broke the transaction")
}

fn write_together(writer: &mut BatchWriter<'_>, batch: &mut Vec<Job>) -> Served {
    let mut offenders = 0;
    while !batch.is_empty() {
        match writer.write(batch) {
            Ok(answers) => {
                let count = answers.len();
                answers::send_all(batch.drain(..count).zip(answers));
            }
            Err(Failure::Spoilt(index, outcome)) => {
                batch.remove(index).answer(Ok(WriteAnswer::Ran(outcome)));
                if batch.iter().any(Job::is_local) {
                    return Served::Apart;
                }
            }
            Err(Failure::Offender(index, fault)) if offenders < OFFENDERS_MAX => {
                offenders += 1;
                batch.remove(index).answer(Err(fault.error()));
            }
            Err(Failure::Offender(_, fault) | Failure::All(fault)) => {
                batch.drain(..).for_each(|job| job.answer(Err(fault.error())));
            }
            Err(Failure::Stuck(fault)) => {
                batch.drain(..).for_each(|job| job.answer(Err(fault.error())));
                return Served::Stuck;
            }
        }
    }
    Served::All
}

/// The writer's resources.
struct BatchWriter<'c> {
    brackets: Brackets<'c>,
    rows: RowWriter<'c>,
    guard: Arc<Guard>,
    violations: Violations<'c>,
    clock: Arc<dyn Clock>,
    files: Arc<OpenFiles>,
}

impl<'c> BatchWriter<'c> {
    fn new(
        connection: &'c Connection,
        clock: Arc<dyn Clock>,
        files: Arc<OpenFiles>,
    ) -> rusqlite::Result<Self> {
        // First, because it invalidates all prepared statements.
        let guard = Guard::on(connection)?;
        let violations = Violations::on(connection)?;
        let (brackets, rows) = (Brackets::new(connection)?, RowWriter::new(connection)?);
        Ok(Self { brackets, rows, guard, violations, clock, files })
    }

    /// One transaction for the whole batch or, if application work is slow, for its beginning. Its answers
    /// are valid only if this returns `Ok`.
    fn write(&mut self, batch: &[Job]) -> Result<Vec<WriteAnswer>, Failure> {
        self.files.check_open().map_err(Failure::All)?;
        if batch.iter().all(|job| matches!(job.work, Work::Inspect)) {
            // Nothing is written, so no lock is needed.
            let looked: rusqlite::Result<Vec<_>> =
                batch.iter().map(|job| self.rows.apply(&job.work, self.clock.now())).collect();
            return looked.map_err(|error| Failure::All(Fault::nothing_written(WRITING, &error)));
        }
        self.brackets.begin().map_err(|error| {
            Failure::All(Fault::nothing_written("beginning to write to the SQLite store", &error))
        })?;
        self.rows.begin();
        // Read the time while holding the lock: until the commit, only this batch can change anything.
        let now = self.clock.now();
        let answers = self.apply(batch, now)?;
        if let Err(error) = self.rows.finish() {
            return Err(self.all(Fault::nothing_written(WRITING, &error)));
        }
        if let Err(error) = self.brackets.commit() {
            // A failed commit can leave the transaction open.
            let rolled_back = self.brackets.roll_back();
            let fault = Fault::of_commit(&error, rolled_back);
            return Err(if rolled_back { Failure::All(fault) } else { Failure::Stuck(fault) });
        }
        self.rows.committed();
        // After the commit: if the file was removed before, no later reader would find the commit.
        self.files.check_commit().map_err(Failure::All)?;
        Ok(answers)
    }

    fn apply(&mut self, batch: &[Job], now: Time) -> Result<Vec<WriteAnswer>, Failure> {
        let (mut answers, mut worked) = (Vec::with_capacity(batch.len()), Duration::ZERO);
        for (index, job) in batch.iter().enumerate() {
            let applied = match &job.work {
                Work::Local(_) if worked >= WORK_MAX => break,
                Work::Local(work) => {
                    let begun = clock::uptime();
                    let (brackets, violations) = (&mut self.brackets, &mut self.violations);
                    let ran = work.run(brackets, &mut self.rows, &self.guard, violations, now);
                    worked += clock::uptime().saturating_sub(begun);
                    match ran {
                        Ok(WorkEffect::WriteAnswer(answer)) => Ok(answer),
                        Ok(WorkEffect::Spoilt(outcome)) if self.brackets.roll_back() => {
                            return Err(Failure::Spoilt(index, outcome));
                        }
                        Ok(WorkEffect::Spoilt(_)) => return Err(Failure::Stuck(broken_transaction())),
                        Err(error) => Err(error),
                    }
                }
                work => self.rows.apply(work, now),
            };
            match applied {
                Ok(answer) => answers.push(answer),
                Err(error) => {
                    let fault = Fault::nothing_written(WRITING, &error);
                    return Err(match (self.brackets.roll_back(), fault.kind) {
                        (false, _) => Failure::Stuck(fault),
                        (true, Kind::Unfit | Kind::TooLarge) => Failure::Offender(index, fault),
                        (true, _) => Failure::All(fault),
                    });
                }
            }
        }
        Ok(answers)
    }

    fn all(&mut self, fault: Fault) -> Failure {
        if self.brackets.roll_back() { Failure::All(fault) } else { Failure::Stuck(fault) }
    }
}

struct AbandonOnDrop<'a>(&'a Queue<Job>);

impl Drop for AbandonOnDrop<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
