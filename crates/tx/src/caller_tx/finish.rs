//! Stores the outcome of an attempt with an external effect, in the transaction of the change that follows
//! from it.

use super::commit::{Committed, lost};
use super::dialect::{CommitStatus, Dialect, WriteFailure};
use super::open::Open;
use crate::ending::finished;
use crate::error::Error;
use semel::local::LocalEnding;
use semel::{Attempt, Finishing};
use std::fmt;
use std::time::Duration;

/// A transaction that contains an attempt's ending, ready to be committed. Dropping it rolls it back, and the
/// attempt may try again.
#[must_use = "nothing is durable before the commit"]
pub struct Finish<'c, D: Dialect> {
    open: Open<'c, D>,
    finishing: Finishing,
    target: D::Target,
    seen: D::Seen,
    written_at: Duration,
}

/// Writes the attempt's ending into an open transaction.
pub(crate) async fn finish<'c, D: Dialect>(
    target: D::Target,
    mut open: Open<'c, D>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c, D>, Error> {
    let mut finishing = attempt.finishing().await;
    let timeouts = finishing.timeouts();
    // From here on there is nothing to wait for but the commit, which this time limit ends too.
    let idle_max = timeouts.store_timeout();
    let (look, seen) = D::look(&mut open, &target, (finishing.id(), None), idle_max, &timeouts).await?;
    if !look.has_lock {
        return Err(Error::StaleSnapshot);
    }
    let written_at = timeouts.uptime();
    let row = finished(&mut finishing, ending, (&look.arbiter, look.asked), D::row)?;
    match D::write_record(&mut open, &target, &seen, row).await {
        Ok(()) => Ok(Finish { open, finishing, target, seen, written_at }),
        Err(WriteFailure::Conflict) => Err(Error::StaleSnapshot),
        Err(WriteFailure::Left) => Err(Error::TransactionLeft(attempt.operation_id())),
        Err(WriteFailure::Failed(error)) => Err(error),
    }
}

impl<D: Dialect> Finish<'_, D> {
    /// Commits. From then on the attempt has this ending, whatever its work returns.
    ///
    /// Call it right away: after the store's timeout (10 s by default) since the ending was written, nothing
    /// is committed and the error is [`Error::CommitTooLate`].
    ///
    /// If the database does not answer the commit, its connection is closed and the ending is looked up.
    /// After [`Error::CommitInDoubt`] end the attempt in doubt: if the transaction did commit, its outcome
    /// counts.
    pub async fn commit(self) -> Result<(), Error> {
        let Self { open, finishing, target, seen, written_at } = self;
        let timeouts = finishing.timeouts();
        let source = match open.commit(&target, &timeouts, finishing.committing(), written_at, &seen).await {
            Committed::Yes => {
                finishing.committed();
                return Ok(());
            }
            Committed::No(error) => return Err(error),
            Committed::Unknown(source) => source,
        };
        let id = finishing.id();
        let write_result = |found: semel_core::machine::Found<'_>| finishing.write_result(found);
        match Box::pin(D::settle(&target, &seen, &timeouts, ((id, None), id), write_result)).await {
            CommitStatus::Committed => {
                finishing.committed();
                Ok(())
            }
            CommitStatus::RolledBack => Err(lost(source)),
            CommitStatus::Unknown => {
                Err(Error::CommitInDoubt { operation_id: finishing.operation_id(), source })
            }
        }
    }
}

impl<D: Dialect> fmt::Debug for Finish<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").field("finishing", &self.finishing).finish_non_exhaustive()
    }
}
