//! The one thread that writes.
//!
//! What lives here: group commit. Whatever has gathered while the last batch was on its way to the disk becomes the next
//! one: one transaction, one sync, then everybody is answered. Whoever is alone is not made to wait for company.
//! What must never: an answer before the commit, or without the check that follows it; encoding, or anything else that a caller's own task can do.

use super::answers;
use super::checkpoint::Pulse;
use super::fault::Fault;
use super::files::OpenFiles;
use super::pen::Pen;
use super::queue::Queue;
use super::write::{Job, Said, Work};
use rusqlite::Connection;
use semel_core::store::{Clock, Kind};
use std::sync::Arc;
use std::time::Duration;

const BATCH_COUNT_MAX: usize = 1024;
/// Fresh bytes in one batch; the pages they change are kept in memory until the commit.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// So many at once are a crowd: those who were answered come back in a moment with their next write, and a commit costs as
/// much for one of them as for all. Where fewer were, nobody waits.
const COMPANY_MIN: usize = 8;
/// How long a smaller batch than the last ones waits for the rest.
const LINGER: Duration = Duration::from_micros(200);
/// One damaged page spoils what touches it and not the whole batch; many, and the file is not worth the trouble.
const OFFENDERS_MAX: usize = 8;

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
}

impl Writer {
    /// Serves until the queue is closed and empty. `ready` is told once, when writing can begin.
    pub(super) fn run(self, ready: impl FnOnce(rusqlite::Result<()>)) {
        let Self { connection, queue, clock, pulse, files } = self;
        // Given up last: whoever learns from it that the writer is gone shall find that nothing more is taken.
        let mut batch = Vec::new();
        // Whatever ends this thread, a panic included: nobody shall wait for it.
        let _guard = Abandon(&queue);
        let mut pen = match Pen::new(&connection) {
            Ok(pen) => pen,
            Err(error) => return ready(Err(error)),
        };
        ready(Ok(()));
        let mut company = 0;
        while queue.gather(&mut batch, BATCH_COUNT_MAX, BATCH_BYTES_MAX, Job::weight) {
            if company >= COMPANY_MIN && batch.len() < company {
                queue.linger(LINGER, company - batch.len());
                queue.gather_more(&mut batch, BATCH_COUNT_MAX, BATCH_BYTES_MAX, Job::weight);
            }
            company = batch.len().max(company - company / 4);
            batch.retain(Job::is_awaited);
            if !serve(&connection, &mut pen, &*clock, &files, &mut batch) {
                return;
            }
            pulse.wrote();
            pulse.keep_log_short(&connection);
        }
    }
}

/// Writes a batch and answers everybody in it. `false` where the connection is of no more use.
fn serve(
    connection: &Connection,
    pen: &mut Pen<'_>,
    clock: &dyn Clock,
    files: &OpenFiles,
    batch: &mut Vec<Job>,
) -> bool {
    let mut offenders = 0;
    loop {
        match write(connection, pen, clock, files, batch) {
            Ok(said) => {
                answers::tell(batch.drain(..).zip(said));
                return true;
            }
            Err(Failure::Offender(index, fault)) if offenders < OFFENDERS_MAX => {
                offenders += 1;
                batch.remove(index).answer(Err(fault.error()));
            }
            Err(Failure::Offender(_, fault) | Failure::All(fault)) => {
                batch.drain(..).for_each(|job| job.answer(Err(fault.error())));
                return true;
            }
            Err(Failure::Stuck(fault)) => {
                batch.drain(..).for_each(|job| job.answer(Err(fault.error())));
                return false;
            }
        }
    }
}

/// One transaction. Everything that was said in it counts only if this returns `Ok`.
fn write(
    connection: &Connection,
    pen: &mut Pen<'_>,
    clock: &dyn Clock,
    files: &OpenFiles,
    batch: &[Job],
) -> Result<Vec<Said>, Failure> {
    const WRITING: &str = "writing to the SQLite store";
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    files.check_open().map_err(Failure::All)?;
    if batch.iter().all(|job| matches!(job.work, Work::Inspect)) {
        // Nothing is written: whoever only looks need not wait for the lock, nor have those wait who come next.
        let looked: rusqlite::Result<Vec<_>> =
            batch.iter().map(|job| pen.apply(&job.work, clock.now())).collect();
        return looked.map_err(|error| Failure::All(Fault::nothing_written(WRITING, &error)));
    }
    execute(connection, "BEGIN IMMEDIATE").map_err(|error| {
        Failure::All(Fault::nothing_written("beginning to write to the SQLite store", &error))
    })?;
    pen.begin();
    // Now that nobody else can write: between this moment and the commit nothing changes but by this batch.
    let now = clock.now();
    let mut said = Vec::with_capacity(batch.len());
    for (index, job) in batch.iter().enumerate() {
        match pen.apply(&job.work, now) {
            Ok(answer) => said.push(answer),
            Err(error) => {
                let fault = Fault::nothing_written(WRITING, &error);
                return Err(match (roll_back(connection), fault.kind) {
                    (false, _) => Failure::Stuck(fault),
                    (true, Kind::Unfit | Kind::TooLarge) => Failure::Offender(index, fault),
                    (true, _) => Failure::All(fault),
                });
            }
        }
    }
    if let Err(error) = pen.finish() {
        let fault = Fault::nothing_written(WRITING, &error);
        return Err(if roll_back(connection) { Failure::All(fault) } else { Failure::Stuck(fault) });
    }
    if let Err(error) = execute(connection, "COMMIT") {
        // A failed commit can leave the transaction open.
        let rolled_back = roll_back(connection);
        let fault = Fault::of_commit(&error, rolled_back);
        return Err(if rolled_back { Failure::All(fault) } else { Failure::Stuck(fault) });
    }
    pen.committed();
    // Only now: a file that was taken away before the commit has it, and nobody will find it there.
    files.check_commit().map_err(Failure::All)?;
    Ok(said)
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

/// Some errors have rolled back already. Says whether the transaction is over.
fn roll_back(connection: &Connection) -> bool {
    connection.is_autocommit() || (execute(connection, "ROLLBACK").is_ok() && connection.is_autocommit())
}

struct Abandon<'a>(&'a Queue<Job>);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
