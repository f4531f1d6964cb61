//! Application work in the batch that writes its record.
//!
//! Contents: one piece of work in its savepoint, from the check of the stored entry to the write of the
//! record. Work and record are committed together or not at all, and other writes in the batch are not
//! affected.

use super::brackets::Brackets;
use super::guard::Guard;
use super::row_writer::RowWriter;
use super::violations::Violations;
use super::write::{EntryLocation, Work, WriteAnswer};
use super::{ENTRY_BYTES_MAX, Store};
use crate::columns::{self, Row};
use rusqlite::Connection;
use semel_core::id::CommandId;
use semel_core::machine::Expect;
use semel_core::record::Record;
use semel_core::store::{Change, Error};
use semel_core::time::Time;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A change of one entry, ready to be written.
#[derive(Debug)]
pub struct Put {
    location: EntryLocation,
    change: Change<Row>,
}

impl Put {
    /// Refused if the record is too large, or belongs under another id.
    pub fn of(id: CommandId, change: Change<&Record>) -> Result<Self, Error> {
        let change = change.try_map(|record| columns::encoded(id, record, ENTRY_BYTES_MAX))?;
        Ok(Self { location: EntryLocation::of(id), change })
    }
}

/// What happens to the changes of the work.
#[derive(Debug)]
pub enum Step {
    /// It is committed together with these entries, or not at all.
    Keep(Vec<Put>),
    /// It is undone, and these entries are committed without it.
    Replace(Vec<Put>),
    /// It is undone.
    Undo,
}

/// The result of work in a batch. Returned as soon as the batch is on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkOutcome {
    /// The result that the last [step](Step) returned, at this time.
    Committed(Time),
    /// The changes of the work were undone, as it asked.
    Undone,
    /// The stored entry is not the expected one. The work was not run, or was undone.
    Conflict,
    /// The work panicked, and was undone.
    Panicked,
    /// A statement of the work ran longer than the limit, and the work was undone.
    Overran,
    /// The work, or a trigger, rolled the transaction back. Nothing of it was committed.
    RolledBack,
    /// The work left a deferred foreign key violated, and was undone.
    Violated,
}

/// Work that waits for its batch.
pub(super) struct LocalWork {
    expects: Vec<(EntryLocation, Expect)>,
    limit: Duration,
    work: Box<dyn Fn(&Connection) -> Step + Send>,
}

/// The effect of one piece of work on the batch.
pub(super) enum WorkEffect {
    /// The rest of the batch is not affected.
    WriteAnswer(WriteAnswer),
    /// The whole transaction is rolled back, or must be: the others have to be written without this one.
    Spoilt(WorkOutcome),
}

impl Store {
    /// Runs `work` on the writer's thread, in a savepoint of the next batch, if each of these IDs has the
    /// expected entry. Its changes and the entries of its [step](Step) are both durable when this answers
    /// [`WorkOutcome::Committed`].
    ///
    /// The work may run several times; only the last one counts. All other writers wait meanwhile: a
    /// statement that takes longer than `limit` is interrupted. It may not begin or end a transaction, attach
    /// a file, set a pragma, create temporary objects, or change the store's tables; the connection's hooks
    /// belong to the store.
    ///
    /// The result is unknown after an error only if the error [is ambiguous](Error::is_ambiguous).
    pub async fn run_in_batch(
        &self,
        expects: impl IntoIterator<Item = (CommandId, Expect)>,
        limit: Duration,
        work: impl Fn(&Connection) -> Step + Send + 'static,
    ) -> Result<WorkOutcome, Error> {
        let expects = expects.into_iter().map(|(id, expect)| (EntryLocation::of(id), expect)).collect();
        match self.write(Work::Local(LocalWork { expects, limit, work: Box::new(work) })).await? {
            WriteAnswer::Ran(outcome) => Ok(outcome),
            other => unreachable!("work is not answered {other:?}"),
        }
    }
}

impl LocalWork {
    /// Runs in the open transaction of a batch. After an error, the transaction has to be rolled back.
    pub(super) fn run(
        &self,
        brackets: &mut Brackets<'_>,
        rows: &mut RowWriter<'_>,
        guard: &Guard,
        violations: &mut Violations<'_>,
        now: Time,
    ) -> rusqlite::Result<WorkEffect> {
        for (location, expect) in &self.expects {
            match rows.meets(*location, expect)? {
                Ok(true) => {}
                Ok(false) => return Ok(WorkEffect::WriteAnswer(WriteAnswer::Ran(WorkOutcome::Conflict))),
                Err(fault) => return Ok(WorkEffect::WriteAnswer(WriteAnswer::Failed(fault))),
            }
        }
        brackets.mark()?;
        let watch = guard.watch(self.limit);
        let step = catch_unwind(AssertUnwindSafe(|| (self.work)(brackets.connection())));
        drop(watch);
        let undone = match (&step, guard.has_interrupted()) {
            (Err(_), _) => Some(WorkOutcome::Panicked),
            // Even if the work changed the state.
            (_, true) => Some(WorkOutcome::Overran),
            (Ok(Step::Undo), _) => Some(WorkOutcome::Undone),
            _ => None,
        };
        if brackets.is_over() {
            return Ok(WorkEffect::Spoilt(undone.unwrap_or(WorkOutcome::RolledBack)));
        }
        // Here, and not at the commit: later work in the batch must neither repair it nor fail with it.
        let is_kept = matches!(&step, Ok(Step::Keep(_))) && undone.is_none();
        let undone = if is_kept && violations.has_any()? { Some(WorkOutcome::Violated) } else { undone };
        if let Some(outcome) = undone {
            brackets.undo()?;
            brackets.release()?;
            return Ok(WorkEffect::WriteAnswer(WriteAnswer::Ran(outcome)));
        }
        let puts = match step {
            Ok(Step::Keep(puts)) => puts,
            Ok(Step::Replace(puts)) => {
                brackets.undo()?;
                puts
            }
            // Checked above.
            Ok(Step::Undo) | Err(_) => Vec::new(),
        };
        for Put { location, change } in &puts {
            if !matches!(rows.write(*location, change, now)?, WriteAnswer::Done(_)) {
                return Ok(WorkEffect::Spoilt(WorkOutcome::Conflict));
            }
        }
        brackets.release()?;
        Ok(WorkEffect::WriteAnswer(WriteAnswer::Ran(WorkOutcome::Committed(now))))
    }
}
