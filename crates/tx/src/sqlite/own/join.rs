//! Manual local commands, in a transaction on the application's own connection.

use super::check::{check_idle, check_open};
use crate::caller_tx::{self, Open};
use crate::error::Error;
use semel::local::{EnterResult, Waiting};
use semel::{Engine, Intent, RecordedOutcome, Refusal};
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

/// The result of joining a transaction.
pub type Joined<'c> = caller_tx::Joined<'c, Sqlite>;
/// A transaction that must end with a local command's record.
pub type OwnedTransaction<'c> = caller_tx::OwnedTransaction<'c, Sqlite>;
/// A transaction that contains a local command's record, ready to be committed.
pub type Recorded<'c> = caller_tx::Recorded<'c, Sqlite>;

/// The result of beginning a command.
#[derive(Debug)]
pub enum Begun<'c> {
    /// This transaction must run the command.
    Owned(OwnedTransaction<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. No transaction is open.
    Answered(Result<RecordedOutcome, Refusal>),
}

/// Begins a transaction on `connection` for `intent`. It ends with [`OwnedTransaction::succeed`] or [`OwnedTransaction::refuse`].
///
/// Does not wait for duplicates: while one runs, the answer is that the command is in progress. It waits for
/// the file's write lock as long as the connection's `busy_timeout` says.
///
/// The connection must be to the store's file, with no transaction open, and `synchronous` at `FULL`
/// (`sqlx`'s default) or more.
pub async fn begin<'c>(
    engine: &Engine,
    connection: &'c mut SqliteConnection,
    intent: Intent,
) -> Result<Begun<'c>, Error> {
    check_idle(engine, connection).await?;
    let command = match engine.enter_local(intent, Waiting::Never).await? {
        EnterResult::Answered(answer) => return Ok(Begun::Answered(answer.into_outcome())),
        EnterResult::Owned(command) => command,
    };
    let transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
    match Box::pin(caller_tx::look_and_join((), Open::new(transaction), command)).await? {
        Joined::Owned(owned) => Ok(Begun::Owned(owned)),
        Joined::Answered { transaction, answer } => {
            transaction.rollback().await.map_err(Error::Database)?;
            Ok(Begun::Answered(answer))
        }
    }
}

/// Joins `transaction` for `intent`: from here on it belongs to the command, and ends with [`OwnedTransaction::succeed`]
/// or [`OwnedTransaction::refuse`].
///
/// Begin it with `BEGIN IMMEDIATE`. Another kind of transaction gets the file's write lock here, or fails
/// with [`Error::StaleSnapshot`] if another connection has written since its first read. It must not be
/// nested in another; `synchronous` must be at `FULL` (`sqlx`'s default) or more. On an error it is rolled
/// back.
///
/// Does not wait for duplicates: while one runs, the answer is that the command is in progress.
///
/// Earlier writes of the transaction belong to the command from now on: [`OwnedTransaction::refuse`] undoes them too.
/// Join first.
///
/// The store must have an ID by then: while the transaction is open, the engine cannot write one. Call
/// [`Engine::store_id`] at start.
pub async fn join<'c>(
    engine: &Engine,
    transaction: Transaction<'c, Sqlite>,
    intent: Intent,
) -> Result<Joined<'c>, Error> {
    let open = check_open(engine, transaction).await?;
    caller_tx::join(engine, (), open, intent).await
}
