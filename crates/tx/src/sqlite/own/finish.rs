//! Stores the outcome of an attempt with an external effect, in the transaction of the change that follows
//! from it.

use super::check::check_open;
use crate::caller_tx;
use crate::error::Error;
use semel::local::LocalEnding;
use semel::{Attempt, Engine};
use sqlx::{Sqlite, Transaction};

/// A transaction that contains an attempt's ending, ready to be committed.
pub type Finish<'c> = caller_tx::Finish<'c, Sqlite>;

/// Writes the ending of an `external` or `downstream` attempt into `transaction`, together with the
/// application's resulting change: the card is charged, then the order is `PAID`. Call it from the attempt's
/// own work, after the change and right before the commit.
///
/// The transaction holds the file's write lock: begin it with `BEGIN IMMEDIATE` after the effect, not before.
/// Another kind of transaction gets the lock here, or fails with [`Error::StaleSnapshot`]. It must not be
/// nested in another.
///
/// From here to the [commit](Finish::commit) the attempt's lease is not renewed: keep it short. A renewal
/// that has already begun cannot write to the file while the transaction is open; this waits until it has
/// given up, for a second at most.
///
/// The store must have an ID by then, as for [`join`](super::join).
///
/// On an error the transaction is rolled back and the work still owns the attempt: it may try again, with a
/// new transaction. If it gives up, it ends in doubt (`Ending::InDoubt`): the effect happened, and the change
/// did not. After [`Error::Overtaken`] there is nothing to try again: the attempt was settled by someone
/// else.
pub async fn finish_in<'c>(
    engine: &Engine,
    transaction: Transaction<'c, Sqlite>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c>, Error> {
    let open = check_open(engine, transaction).await?;
    caller_tx::finish((), open, attempt, ending).await
}
