//! The outcome of an attempt that had its effect elsewhere, in the transaction of the change that follows from it.

use super::conduct::{Committed, commit};
use super::database::Database;
use super::look::{Seen, look};
use super::settle::{Doubt, Known};
use super::write::{RecordWrite, Unwritten, write_record};
use crate::ending::finished;
use crate::error::Error;
use semel::local::LocalEnding;
use semel::{Attempt, Engine, Finishing};
use sqlx::{Postgres, Transaction};
use std::fmt;

/// A transaction that holds how an attempt ended, ready to be committed. Dropped, it is rolled back, and the attempt may try again.
#[must_use = "nothing is durable before the commit"]
pub struct Finish<'c> {
    transaction: Transaction<'c, Postgres>,
    finishing: Finishing,
    database: Database,
    seen: Seen,
}

/// Writes how an `external` or `downstream` attempt ended into `transaction`, together with what the application changes because of it:
/// the card is charged, then the order is `PAID`. Call it from the attempt's own work, after the change and right before the commit.
///
/// From here to the [commit](Finish::commit) the attempt's lease is not renewed: keep it short.
///
/// On an error the transaction is rolled back and the attempt is still this work's: it may try again, with a new transaction.
/// Once it gives up, it ends in doubt (`Ending::InDoubt`): the effect happened, and what should follow from it did not.
/// [`Error::Overtaken`] says that there is nothing to try again: somebody else has settled the attempt.
pub async fn finish_in<'c>(
    engine: &Engine,
    database: &Database,
    mut transaction: Transaction<'c, Postgres>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c>, Error> {
    let checked = database.check(engine).await?;
    let mut finishing = attempt.finishing().await;
    let ids = (finishing.id(), None);
    let (looked, seen) = look(&mut transaction, checked, ids, &finishing.patience()).await?;
    if !looked.has_lock {
        return Err(Error::StaleSnapshot);
    }
    let record = finished(&mut finishing, ending, (&looked.arbiter, looked.asked), RecordWrite::of)?;
    match write_record(&mut transaction, checked, &seen, record).await {
        Ok(()) => Ok(Finish { transaction, finishing, database: database.clone(), seen }),
        Err(Unwritten::Conflict) => Err(Error::StaleSnapshot),
        Err(Unwritten::Left) => Err(Error::TransactionLeft(attempt.operation_id())),
        Err(Unwritten::Failed(error)) => Err(error),
    }
}

impl Finish<'_> {
    /// Commits. From then on the attempt has ended so, whatever its work returns.
    ///
    /// A commit of which nobody knows what became is looked into like that of [`transact`](super::transact). After
    /// [`Error::CommitInDoubt`] end the attempt in doubt: where the transaction did commit, its outcome stands all the same.
    pub async fn commit(self) -> Result<(), Error> {
        let Self { mut transaction, finishing, database, seen } = self;
        let patience = finishing.patience();
        // By hand: of a nested transaction, sqlx would release the savepoint and commit nothing.
        let committing = sqlx::query("COMMIT").execute(&mut *transaction);
        let committed = commit(&patience, finishing.committing(), committing, patience.uptime()).await;
        drop(transaction);
        let source = match committed {
            Committed::Yes => {
                finishing.committed();
                return Ok(());
            }
            Committed::No(error) => return Err(Error::Database(error)),
            Committed::Unknown(source) => source,
        };
        let id = finishing.id();
        let doubt = Doubt { patience, database: &database, seen: &seen, ids: (id, None), id };
        match Box::pin(doubt.settle(|found| finishing.landed(found))).await {
            Known::Committed => {
                finishing.committed();
                Ok(())
            }
            Known::RolledBack => Err(Error::Database(sqlx::Error::Io(std::io::Error::other(source)))),
            Known::NotYet | Known::Never => {
                Err(Error::CommitInDoubt { operation_id: finishing.operation_id(), source })
            }
        }
    }
}

impl fmt::Debug for Finish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").field("finishing", &self.finishing).finish_non_exhaustive()
    }
}
