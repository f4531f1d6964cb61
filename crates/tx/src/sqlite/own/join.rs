//! Manual local commands, in a transaction on the application's own connection.

use super::check::{check_idle, check_open};
use crate::error::Error;
use crate::hand::{self, Open};
use semel::local::{Entered, Waiting};
use semel::{Engine, Intent, RecordedOutcome, Refusal};
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

/// The result of joining a transaction.
pub type Joined<'c> = hand::Joined<'c, Sqlite>;
/// A transaction that must end with a local command's record.
pub type Mine<'c> = hand::Mine<'c, Sqlite>;
/// A transaction that contains a local command's record, ready to be committed.
pub type Recorded<'c> = hand::Recorded<'c, Sqlite>;

/// The result of beginning a command.
#[derive(Debug)]
pub enum Begun<'c> {
    /// This transaction must run the command.
    Mine(Mine<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. No transaction is open.
    Answered(Result<RecordedOutcome, Refusal>),
}

/// Begins a transaction on `connection` for `intent`. It ends with [`Mine::succeed`] or [`Mine::refuse`].
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
        Entered::Answered(answer) => return Ok(Begun::Answered(answer.into_outcome())),
        Entered::Mine(command) => command,
    };
    let transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
    match Box::pin(hand::look_and_join((), Open::new(transaction), command)).await? {
        Joined::Mine(mine) => Ok(Begun::Mine(mine)),
        Joined::Answered { transaction, answer } => {
            transaction.rollback().await.map_err(Error::Database)?;
            Ok(Begun::Answered(answer))
        }
    }
}

/// Joins `transaction` for `intent`: from here on it belongs to the command, and ends with [`Mine::succeed`]
/// or [`Mine::refuse`].
///
/// Begin it with `BEGIN IMMEDIATE`. Another kind of transaction gets the file's write lock here, or fails
/// with [`Error::StaleSnapshot`] if another connection has written since its first read. It must not be
/// nested in another; `synchronous` must be at `FULL` (`sqlx`'s default) or more. On an error it is rolled
/// back.
///
/// Does not wait for duplicates: while one runs, the answer is that the command is in progress.
///
/// Earlier writes of the transaction belong to the command from now on: [`Mine::refuse`] undoes them too.
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
    hand::join(engine, (), open, intent).await
}
