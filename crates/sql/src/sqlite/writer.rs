//! The one thread that writes.
//!
//! Contents: group commit. Whatever has gathered while the last batch was on its way to the disk becomes the next
//! one: one transaction, one sync, then everybody is answered. Anyone who is alone is not made to wait for company.
//! Never here: an answer before the commit, or without the check that follows it; encoding, or anything else that a
//! caller's own task can do.

use super::answers;
use super::brackets::Brackets;
use super::checkpoint::Pulse;
use super::fault::Fault;
use super::files::OpenFiles;
use super::guard::Guard;
use super::local::{Ran, WorkOutcome};
use super::open::write_impatiently;
use super::pen::Pen;
use super::queue::Queue;
use super::violations::Violations;
use super::write::{Job, Said, Work};
use crate::clock;
use rusqlite::Connection;
use semel_core::store::{Clock, Kind};
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

const BATCH_COUNT_MAX: usize = 1024;
/// Fresh bytes in one batch; the pages they change are kept in memory until the commit.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// So many at once are a crowd: those who were answered come back in a moment with their next write, and a commit
/// costs as much for one of them as for all. If fewer were, nobody waits.
const COMPANY_MIN: usize = 8;
/// How long a smaller batch than the last ones waits for the rest.
const LINGER: Duration = Duration::from_micros(200);
/// One damaged page spoils what touches it and not the whole batch; many, and the file is not worth the trouble.
const OFFENDERS_MAX: usize = 8;
/// How long the application's own work may take together before what there is becomes a batch: everybody in it waits.
const WORK_MAX: Duration = Duration::from_millis(250);
const WRITING: &str = "writing to the SQLite store";

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) queue: Arc<Queue<Job>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) files: Arc<OpenFiles>,
}

/// Why a batch was not written.
enum Failure {
    /// One of them cannot be written; the rest can be tried without it.
    Offender(usize, Fault),
    All(Fault),
    /// As before, and the connection is stuck in its transaction.
    Stuck(Fault),
    /// This work spoilt the transaction. It is rolled back, and can be written without it.
    Spoilt(usize, WorkOutcome),
}

impl Writer {
    /// Serves until the queue is closed and empty. `ready` is told once, when writing can begin.
    pub(super) fn run(self, ready: impl FnOnce(rusqlite::Result<()>)) {
        let Self { connection, queue, clock, pulse, files } = self;
        // Given up last: anyone who learns from it that the writer is gone shall find that nothing more is taken.
        let mut batch = Vec::new();
        // Whatever ends this thread, a panic included: nobody shall wait for it.
        let _guard = Abandon(&queue);
        let mut writer = match BatchWriter::new(&connection, clock, files) {
            Ok(writer) => writer,
            Err(error) => return ready(Err(error)),
        };
        if let Err(error) = write_impatiently(&connection) {
            return ready(Err(error));
        }
        ready(Ok(()));
        let mut company = 0;
        while queue.gather(&mut batch, BATCH_COUNT_MAX, BATCH_BYTES_MAX, Job::weight) {
            if company >= COMPANY_MIN && batch.len() < company {
                queue.linger(LINGER, company - batch.len());
                queue.gather_more(&mut batch, BATCH_COUNT_MAX, BATCH_BYTES_MAX, Job::weight);
            }
            company = batch.len().max(company - company / 4);
            batch.retain(Job::is_awaited);
            if !serve(&mut writer, &mut batch) {
                return;
            }
            pulse.wrote();
            pulse.keep_log_short(&connection);
        }
    }
}

/// How a batch was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// Everybody is answered.
    All,
    /// One of them spoils the transaction for the others, and it is not to be said which: those who are left are to
    /// be written apart.
    Apart,
    /// Everybody is answered, and the connection is of no more use.
    Stuck,
}

/// Writes a batch and answers everybody in it. `false` if the connection is of no more use.
fn serve(writer: &mut BatchWriter<'_>, batch: &mut Vec<Job>) -> bool {
    match serve_together(writer, batch) {
        Served::All => return true,
        Served::Stuck => return false,
        Served::Apart => {}
    }
    // The store's own writes together, as ever, and each piece of work alone: what it does then concerns nobody else.
    let (works, mut others): (Vec<_>, Vec<_>) = batch.drain(..).partition(Job::is_local);
    let mut is_stuck = serve_together(writer, &mut others) == Served::Stuck;
    for work in works {
        batch.push(work);
        is_stuck = is_stuck || serve_together(writer, batch) == Served::Stuck;
    }
    !is_stuck
}

fn spoilt() -> Fault {
    Fault::new(Kind::Unavailable, WRITING, "the transaction was spoilt by the store's own writes")
}

fn serve_together(writer: &mut BatchWriter<'_>, batch: &mut Vec<Job>) -> Served {
    let mut offenders = 0;
    while !batch.is_empty() {
        match writer.write(batch) {
            Ok(said) => {
                let count = said.len();
                answers::tell(batch.drain(..count).zip(said));
            }
            Err(Failure::Spoilt(index, outcome)) => {
                batch.remove(index).answer(Ok(Said::Ran(outcome)));
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

/// What the thread writes with.
struct BatchWriter<'c> {
    brackets: Brackets<'c>,
    pen: Pen<'c>,
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
        // First: it has every statement prepared anew.
        let guard = Guard::on(connection)?;
        let violations = Violations::on(connection)?;
        let (brackets, pen) = (Brackets::new(connection)?, Pen::new(connection)?);
        Ok(Self { brackets, pen, guard, violations, clock, files })
    }

    /// One transaction, of the whole batch or, where work takes its time, of its beginning. Everything that was said
    /// in it counts only if this returns `Ok`.
    fn write(&mut self, batch: &[Job]) -> Result<Vec<Said>, Failure> {
        self.files.check_open().map_err(Failure::All)?;
        if batch.iter().all(|job| matches!(job.work, Work::Inspect)) {
            // Nothing is written: anyone who only looks need not wait for the lock, nor have those wait who come
            // next.
            let looked: rusqlite::Result<Vec<_>> =
                batch.iter().map(|job| self.pen.apply(&job.work, self.clock.now())).collect();
            return looked.map_err(|error| Failure::All(Fault::nothing_written(WRITING, &error)));
        }
        self.brackets.begin().map_err(|error| {
            Failure::All(Fault::nothing_written("beginning to write to the SQLite store", &error))
        })?;
        self.pen.begin();
        // Now that nobody else can write: between this moment and the commit nothing changes but by this batch.
        let now = self.clock.now();
        let said = self.apply(batch, now)?;
        if let Err(error) = self.pen.finish() {
            return Err(self.all(Fault::nothing_written(WRITING, &error)));
        }
        if let Err(error) = self.brackets.commit() {
            // A failed commit can leave the transaction open.
            let rolled_back = self.brackets.roll_back();
            let fault = Fault::of_commit(&error, rolled_back);
            return Err(if rolled_back { Failure::All(fault) } else { Failure::Stuck(fault) });
        }
        self.pen.committed();
        // Only now: a file that was taken away before the commit has it, and nobody will find it there.
        self.files.check_commit().map_err(Failure::All)?;
        Ok(said)
    }

    fn apply(&mut self, batch: &[Job], now: Time) -> Result<Vec<Said>, Failure> {
        let (mut said, mut worked) = (Vec::with_capacity(batch.len()), Duration::ZERO);
        for (index, job) in batch.iter().enumerate() {
            let applied = match &job.work {
                Work::Local(_) if worked >= WORK_MAX => break,
                Work::Local(work) => {
                    let begun = clock::uptime();
                    let (brackets, violations) = (&mut self.brackets, &mut self.violations);
                    let ran = work.run(brackets, &mut self.pen, &self.guard, violations, now);
                    worked += clock::uptime().saturating_sub(begun);
                    match ran {
                        Ok(Ran::Said(said)) => Ok(said),
                        Ok(Ran::Spoilt(outcome)) if self.brackets.roll_back() => {
                            return Err(Failure::Spoilt(index, outcome));
                        }
                        Ok(Ran::Spoilt(_)) => return Err(Failure::Stuck(spoilt())),
                        Err(error) => Err(error),
                    }
                }
                work => self.pen.apply(work, now),
            };
            match applied {
                Ok(answer) => said.push(answer),
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
        Ok(said)
    }

    fn all(&mut self, fault: Fault) -> Failure {
        if self.brackets.roll_back() { Failure::All(fault) } else { Failure::Stuck(fault) }
    }
}

struct Abandon<'a>(&'a Queue<Job>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
