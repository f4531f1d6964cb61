//! The outcome of an attempt that had its effect elsewhere, in the transaction of the change that follows from it.

use super::commit::{Committed, lost};
use super::dialect::{Dialect, Known, Unwritten};
use super::open::Open;
use crate::ending::finished;
use crate::error::Error;
use semel::local::LocalEnding;
use semel::{Attempt, Finishing};
use std::fmt;
use std::time::Duration;

/// A transaction that holds how an attempt ended, ready to be committed. Dropped, it is rolled back, and the attempt may try again.
#[must_use = "nothing is durable before the commit"]
pub struct Finish<'c, D: Dialect> {
    open: Open<'c, D>,
    finishing: Finishing,
    target: D::Target,
    seen: D::Seen,
    written_at: Duration,
}

/// Writes how the attempt ended into an open transaction.
pub(crate) async fn finish<'c, D: Dialect>(
    target: D::Target,
    mut open: Open<'c, D>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c, D>, Error> {
    let mut finishing = attempt.finishing().await;
    let patience = finishing.patience();
    let (look, seen) = D::look(&mut open, &target, (finishing.id(), None), &patience).await?;
    if !look.has_lock {
        return Err(Error::StaleSnapshot);
    }
    let written_at = patience.uptime();
    let row = finished(&mut finishing, ending, (&look.arbiter, look.asked), D::row)?;
    match D::write_record(&mut open, &target, &seen, row).await {
        Ok(()) => Ok(Finish { open, finishing, target, seen, written_at }),
        Err(Unwritten::Conflict) => Err(Error::StaleSnapshot),
        Err(Unwritten::Left) => Err(Error::TransactionLeft(attempt.operation_id())),
        Err(Unwritten::Failed(error)) => Err(error),
    }
}

impl<D: Dialect> Finish<'_, D> {
    /// Commits. From then on the attempt has ended so, whatever its work returns.
    ///
    /// Call it right away: once the store's timeout (10 s by default) has passed since the ending was written, nothing is committed and
    /// the error is [`Error::CommitTooLate`].
    ///
    /// If the database does not answer the commit, its connection is closed and the ending is looked for. After
    /// [`Error::CommitInDoubt`] end the attempt in doubt: if the transaction did commit, its outcome counts all the same.
    pub async fn commit(self) -> Result<(), Error> {
        let Self { open, finishing, target, seen, written_at } = self;
        let patience = finishing.patience();
        let source = match open.commit(&target, &patience, finishing.committing(), written_at).await {
            Committed::Yes => {
                finishing.committed();
                return Ok(());
            }
            Committed::No(error) => return Err(error),
            Committed::Unknown(source) => source,
        };
        let id = finishing.id();
        let landed = |found: semel_core::machine::Found<'_>| finishing.landed(found);
        match Box::pin(D::settle(&target, &seen, &patience, ((id, None), id), landed)).await {
            Known::Committed => {
                finishing.committed();
                Ok(())
            }
            Known::RolledBack => Err(lost(source)),
            Known::Nothing => Err(Error::CommitInDoubt { operation_id: finishing.operation_id(), source }),
        }
    }
}

impl<D: Dialect> fmt::Debug for Finish<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").field("finishing", &self.finishing).finish_non_exhaustive()
    }
}
