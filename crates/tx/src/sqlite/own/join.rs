//! Local commands by hand, in a transaction on a connection of the application's own.

use super::check::{check_idle, check_open};
use crate::error::Error;
use crate::hand::{self, Open};
use semel::local::{Entered, Waiting};
use semel::{Answer, Engine, Intent};
use sqlx::{Connection as _, Sqlite, SqliteConnection, Transaction};

/// The result of joining a transaction.
pub type Joined<'c> = hand::Joined<'c, Sqlite>;
/// A transaction that is to end with a local command's record.
pub type Mine<'c> = hand::Mine<'c, Sqlite>;
/// A transaction that holds a local command's record, ready to be committed.
pub type Recorded<'c> = hand::Recorded<'c, Sqlite>;

/// The result of beginning a command.
#[derive(Debug)]
pub enum Begun<'c> {
    /// The command is this transaction's to run.
    Mine(Mine<'c>),
    /// There is nothing to run: the command has an outcome, or runs elsewhere. No transaction is open.
    Answered(Answer),
}

/// Begins a transaction on `connection` for what `intent` asks for. It ends with [`Mine::succeed`] or [`Mine::refuse`].
///
/// Does not wait for twins: while one runs, the answer is that the command is in progress. For the file's write lock it waits as long as
/// the connection's `busy_timeout` says.
///
/// The connection must be to the store's file, with no transaction open, and `synchronous` at `FULL` (`sqlx`'s default) or more.
pub async fn begin<'c>(
    engine: &Engine,
    connection: &'c mut SqliteConnection,
    intent: Intent,
) -> Result<Begun<'c>, Error> {
    check_idle(engine, connection).await?;
    let command = match engine.enter_local(intent, Waiting::Never).await? {
        Entered::Answered(answer) => return Ok(Begun::Answered(answer)),
        Entered::Mine(command) => command,
    };
    let transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(Error::Database)?;
    match hand::look_and_join((), Open::new(transaction), command).await? {
        Joined::Mine(mine) => Ok(Begun::Mine(mine)),
        Joined::Answered { transaction, answer } => {
            transaction.rollback().await.map_err(Error::Database)?;
            Ok(Begun::Answered(answer))
        }
    }
}

/// Joins `transaction` for what `intent` asks for: from here on it is the command's own, and ends with [`Mine::succeed`] or
/// [`Mine::refuse`].
///
/// Begin it with `BEGIN IMMEDIATE`. One of another kind gets the file's write lock here, or fails with [`Error::StaleSnapshot`] if
/// somebody has written since it began to read. It must not be nested in another; `synchronous` must be at `FULL` (`sqlx`'s default) or
/// more. On an error it is rolled back.
///
/// Does not wait for twins: while one runs, the answer is that the command is in progress.
///
/// What the transaction wrote before belongs to the command from now on: [`Mine::refuse`] undoes that too. Join first.
///
/// The store needs an ID by then: while the transaction is open, the engine cannot write one. Call [`Engine::store_id`] at start.
pub async fn join<'c>(
    engine: &Engine,
    transaction: Transaction<'c, Sqlite>,
    intent: Intent,
) -> Result<Joined<'c>, Error> {
    let open = check_open(engine, transaction).await?;
    hand::join(engine, (), open, intent).await
}
