//! Stores the outcome of an attempt with an external effect, in the transaction of the change that follows
//! from it.

use super::database::Database;
use super::join::outermost;
use crate::caller_tx;
use crate::error::Error;
use semel::local::LocalEnding;
use semel::{Attempt, Engine};
use sqlx::{Postgres, Transaction};

/// A transaction that contains an attempt's ending, ready to be committed.
pub type Finish<'c> = caller_tx::Finish<'c, Postgres>;

/// Writes the ending of an `external` or `downstream` attempt into `transaction`, together with the
/// application's resulting change: the card is charged, then the order is `PAID`. Call it from the attempt's
/// own work, after the change and right before the commit.
///
/// From here to the [commit](Finish::commit) the attempt's lease is not renewed: keep it short. The server
/// rolls the transaction back if it is idle for longer than the store's timeout.
///
/// On an error the transaction is rolled back and the work still owns the attempt: it may try again, with a
/// new transaction. If it gives up, it ends in doubt (`Ending::InDoubt`): the effect happened, and the change
/// did not. After [`Error::Overtaken`] there is nothing to try again: the attempt was settled by someone
/// else.
pub async fn finish_in<'c>(
    engine: &Engine,
    database: &Database,
    transaction: Transaction<'c, Postgres>,
    attempt: &Attempt,
    ending: LocalEnding,
) -> Result<Finish<'c>, Error> {
    let open = outermost(transaction)?;
    database.check_beside(engine).await?;
    caller_tx::finish(database.clone(), open, attempt, ending).await
}
