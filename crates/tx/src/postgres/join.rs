//! Manual local commands, in a transaction that is already open.

use super::database::Database;
use crate::caller_tx::{self, Open};
use crate::error::Error;
use semel::{Engine, Intent};
use semel_core::store::{self, Kind};
use sqlx::{Postgres, Transaction};

/// The result of joining a transaction.
pub type Joined<'c> = caller_tx::Joined<'c, Postgres>;
/// A transaction that must end with a local command's record.
pub type OwnedTransaction<'c> = caller_tx::OwnedTransaction<'c, Postgres>;
/// A transaction that contains a local command's record, ready to be committed.
pub type Recorded<'c> = caller_tx::Recorded<'c, Postgres>;

/// Joins `transaction` for `intent`: from here on it belongs to the command, and ends with [`OwnedTransaction::succeed`]
/// or [`OwnedTransaction::refuse`].
///
/// Does not wait: while a duplicate runs, the answer is that the command is in progress. The transaction
/// belongs to the caller, so it runs in no task of the engine, and dropping it rolls it back.
///
/// The server rolls it back if it is idle for longer than the policy's `work_deadline` plus the store's
/// timeout, for example because this process is frozen. Until here only the application's own
/// `idle_in_transaction_session_timeout` does that.
///
/// `transaction` must not be nested in another one, which would decide instead: that is refused.
///
/// Earlier writes of the transaction belong to the command from now on: [`OwnedTransaction::refuse`] undoes them too.
/// Join first.
///
/// Above `READ COMMITTED` the transaction sees the record as it was at its own first statement. If that is
/// too old, ending it fails with [`Error::StaleSnapshot`] and everything is rolled back: try again with a new
/// transaction.
pub async fn join<'c>(
    engine: &Engine,
    database: &Database,
    transaction: Transaction<'c, Postgres>,
    intent: Intent,
) -> Result<Joined<'c>, Error> {
    let open = outermost(transaction)?;
    database.check_beside(engine).await?;
    caller_tx::join(engine, database.clone(), open, intent).await
}

/// Refuses a transaction that is nested in another, which is left unchanged.
pub(super) fn outermost(transaction: Transaction<'_, Postgres>) -> Result<Open<'_, Postgres>, Error> {
    let open = Open::new(transaction);
    let cause = match open.depth() {
        0 => "sqlx has rolled the transaction back, because a nested one could not be begun",
        1 => return Ok(open),
        _ => "the transaction is nested in another, whose end would decide instead of this one's",
    };
    drop(open.into_transaction());
    Err(Error::Store(store::Error::new(Kind::Unfit, "joining a transaction").because(cause)))
}
