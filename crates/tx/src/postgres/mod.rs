//! Local commands in transactions on a PostgreSQL server.
//!
//! The engine's store and the [`Database`] lead to the same database. The role of the pool needs `USAGE` on the store's schema,
//! `EXECUTE` on its functions, `SELECT`, `INSERT`, `UPDATE` and `DELETE` on `records`, and `SELECT` on `settings`.
//!
//! [`transact`] costs two round trips more than the same transaction without it: one tries the command's lock and reads its record,
//! one writes it.

mod conduct;
mod database;
mod dialect;
mod finish;
mod join;
mod lent;
mod look;
mod settle;
mod write;

pub use crate::ending::Pending;
pub use database::{Database, Isolation};
pub use finish::{Finish, finish_in};
pub use join::{Joined, Mine, Recorded, join};

use crate::ending::conducted;
use crate::error::{BoxError, Error};
use futures_util::future::BoxFuture;
use semel::local::{Local, LocalEnding};
use semel::{Answer, Engine, Intent};
use sqlx::PgConnection;
use std::sync::Arc;

/// The work of a local command.
type Work = Arc<
    dyn for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>> + Send + Sync,
>;

/// Does what `intent` asks for, exactly once, in one transaction with its record.
///
/// `work` is run in a transaction, in a task of the engine's own: a caller that goes away leaves nothing half done. What it returns
/// decides:
///
/// - [`LocalEnding::Succeeded`]: what it wrote is committed together with the outcome.
/// - [`LocalEnding::Refused`]: everything it wrote is undone, and the refusal is committed alone.
/// - An error: everything is rolled back, and nothing says that it ever ran. The next call with the key runs it again.
///
/// It may be run several times before one of them commits (after serialization failures and deadlocks, or where another node was
/// faster), and must therefore do nothing outside of its transaction. It must not end the transaction: the record would be missing.
///
/// Duplicates wait for as long as the [intent](Intent::waiting) allows, without a connection, and get the outcome; after that they
/// are told that it is in progress. Where the work runs longer than the policy's `work_deadline`, it is rolled back.
///
/// [`Error::CommitInDoubt`] says that nobody can tell; see there.
pub async fn transact<W>(
    engine: &Engine,
    database: &Database,
    intent: Intent,
    work: W,
) -> Result<Answer, Error>
where
    W: for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>>
        + Send
        + Sync
        + 'static,
{
    database.check(engine).await?;
    let (database, work): (_, Work) = (database.clone(), Arc::new(work));
    conducted(engine, intent, move |command| conduct::conduct(command, database, work)).await
}

/// The server did not answer within the store's timeout.
fn timed_out() -> Error {
    Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
}
