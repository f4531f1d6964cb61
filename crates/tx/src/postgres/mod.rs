//! Local commands in transactions on a PostgreSQL server.
//!
//! The engine's store and the [`Database`] use the same database. The role of the pool needs `USAGE` on the
//! store's schema, `EXECUTE` on its functions, `SELECT`, `INSERT`, `UPDATE` and `DELETE` on `records`, and
//! `SELECT` on `settings`.
//!
//! [`transact`] costs two more round trips than the same transaction without it: one tries the command's lock
//! and reads its record, one writes it.

mod borrowed;
mod conduct;
mod database;
mod dialect;
mod finish;
mod join;
mod look;
mod settle;
mod write;

pub use crate::ending::Pending;
pub use database::{Database, Isolation};
pub use finish::{Finish, finish_in};
pub use join::{Joined, OwnedTransaction, Recorded, join};

use crate::ending::conduct_in_engine;
use crate::error::{BoxError, Error};
use futures_util::future::BoxFuture;
use semel::local::{Local, LocalEnding};
use semel::{Engine, Intent, RecordedOutcome};
use sqlx::PgConnection;
use std::sync::Arc;

/// The work of a local command.
type Work = Arc<
    dyn for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>> + Send + Sync,
>;

/// Runs `intent` exactly once, in one transaction with its record. `Ok` means that the command took effect,
/// now or in an earlier call with the key. Everything else is an error, also a refusal by the work and a key
/// that is bound to another payload ([`Error::Refused`]).
///
/// `work` runs in a transaction, in a task of the engine: a cancelled caller leaves nothing half done. Its
/// return value decides:
///
/// - [`LocalEnding::Succeeded`]: its writes are committed together with the outcome.
/// - [`LocalEnding::Refused`]: everything it wrote is undone, and the refusal is committed alone.
/// - An error: everything is rolled back, without a trace that it ran. The next call with the key runs it
///   again.
///
/// It may run several times before one run commits (after serialization failures and deadlocks, or if another
/// node was faster), so it must do nothing outside its transaction. It must not end the transaction: the
/// record would be missing.
///
/// Duplicates wait for as long as the [intent](Intent::waiting) allows, without a connection, and get the
/// outcome; after that they are refused as in progress. If the work runs longer than the policy's
/// `work_deadline`, it is rolled back.
///
/// If this process is frozen or cut off in the middle, the server rolls the transaction back after it has been
/// idle for that deadline plus the store's timeout, and the key is free again.
///
/// [`Error::CommitInDoubt`] means that the result is unknown; see there.
pub async fn transact<W>(
    engine: &Engine,
    database: &Database,
    intent: Intent,
    work: W,
) -> Result<RecordedOutcome, Error>
where
    W: for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>>
        + Send
        + Sync
        + 'static,
{
    database.check(engine).await?;
    let (database, work): (_, Work) = (database.clone(), Arc::new(work));
    let answer = conduct_in_engine(engine, intent, move |command| conduct::conduct(command, database, work));
    Ok(answer.await?.into_outcome()?)
}

/// The server did not answer within the store's timeout.
fn timed_out() -> Error {
    Error::Database(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()))
}
