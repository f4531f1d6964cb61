//! The outcome of an attempt that had its effect elsewhere, in the transaction of the change that follows from it.

use super::check::check_open;
use crate::error::Error;
use crate::hand;
use semel::local::LocalEnding;
use semel::{Attempt, Engine};
use sqlx::{Sqlite, Transaction};

/// A transaction that holds how an attempt ended, ready to be committed.
pub type Finish<'c> = hand::Finish<'c, Sqlite>;

/// Writes how an `external` or `downstream` attempt ended into `transaction`, together with what the application changes because of it:
/// the card is charged, then the order is `PAID`. Call it from the attempt's own work, after the change and right before the commit.
///
/// The transaction holds the file's write lock: begin it with `BEGIN IMMEDIATE` after the effect, not before. One of another kind gets the
/// lock here, or fails with [`Error::StaleSnapshot`]. It must not be nested in another.
///
/// From here to the [commit](Finish::commit) the attempt's lease is not renewed: keep it short. A renewal that has begun already cannot
/// write to the file while the transaction is open; this waits until it has given up, for a second at most.
///
/// The store needs an ID by then, as for [`join`](super::join).
///
/// On an error the transaction is rolled back and the attempt is still this work's: it may try again, with a new transaction.
/// If it gives up, it ends in doubt (`Ending::InDoubt`): the effect happened, and what should follow from it did not.
/// [`Error::Overtaken`] says that there is nothing to try again: somebody else has settled the attempt.
pub async fn finish_in<'c>(
    engine: &Engine,
    transaction: Transaction<'c, Sqlite>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c>, Error> {
    let open = check_open(engine, transaction).await?;
    hand::finish((), open, attempt, ending).await
}
