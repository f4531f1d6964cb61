//! The outcome of an attempt that had its effect elsewhere, in the transaction of the change that follows from it.

use super::check::check_open;
use super::commit::{Committed, commit};
use super::rows::{RecordWrite, look, write_record};
use crate::ending::finished;
use crate::error::Error;
use semel::local::LocalEnding;
use semel::{Attempt, Engine, Finishing};
use sqlx::{Sqlite, Transaction};
use std::fmt;

/// A transaction that holds how an attempt ended, ready to be committed. Dropped, it is rolled back, and the attempt may try again.
#[must_use = "nothing is durable before the commit"]
pub struct Finish<'c> {
    transaction: Transaction<'c, Sqlite>,
    finishing: Finishing,
}

/// Writes how an `external` or `downstream` attempt ended into `transaction`, together with what the application changes because of it:
/// the card is charged, then the order is `PAID`. Call it from the attempt's own work, after the change and right before the commit.
///
/// The transaction holds the file's write lock: begin it with `BEGIN IMMEDIATE` after the effect, not before. One of another kind gets the
/// lock here, or fails with [`Error::StaleSnapshot`]. It must not be nested in another.
///
/// From here to the [commit](Finish::commit) the attempt's lease is not renewed: keep it short. A renewal that has begun already cannot
/// write to the file while the transaction is open; this waits until it has given up, for a second at most.
///
/// The store needs an id by then, as for [`join`](super::join).
///
/// On an error the transaction is rolled back and the attempt is still this work's: it may try again, with a new transaction.
/// Once it gives up, it ends in doubt (`Ending::InDoubt`): the effect happened, and what should follow from it did not.
/// [`Error::Overtaken`] says that there is nothing to try again: somebody else has settled the attempt.
pub async fn finish_in<'c>(
    engine: &Engine,
    mut transaction: Transaction<'c, Sqlite>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c>, Error> {
    check_open(engine, &mut transaction).await?;
    let mut finishing = attempt.finishing().await;
    let ids = (finishing.id(), None);
    let (looked, seen) = look(&mut transaction, ids, &finishing.patience()).await?;
    let record = finished(&mut finishing, ending, (&looked.arbiter, looked.asked), RecordWrite::of)?;
    write_record(&mut transaction, record, &seen).await?;
    Ok(Finish { transaction, finishing })
}

impl Finish<'_> {
    /// Commits. From then on the attempt has ended so, whatever its work returns.
    ///
    /// After [`Error::CommitInDoubt`] end the attempt in doubt: where the transaction did commit, its outcome stands all the same.
    pub async fn commit(self) -> Result<(), Error> {
        let Self { transaction, finishing } = self;
        match commit(transaction, &finishing.patience(), finishing.committing()).await {
            Committed::Yes => finishing.committed(),
            Committed::No(error) => return Err(Error::Database(error)),
            Committed::Unknown(_) if finishing.has_landed().await => finishing.committed(),
            Committed::Unknown(source) => {
                return Err(Error::CommitInDoubt { operation_id: finishing.operation_id(), source });
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Finish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").field("finishing", &self.finishing).finish_non_exhaustive()
    }
}
