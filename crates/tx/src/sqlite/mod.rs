//! Local commands in the file of an SQLite store.
//!
//! [`transact`] runs the work on the store's own writer thread, in a savepoint of the next group commit:
//! local commands share one wait for the disk with each other and with all other writes of the store. The
//! application's tables are in the same file as the store's.
//!
//! [`own`] is for an application with its own connection to the file. It costs more; see there.

mod conduct;
mod database;
mod finish;
pub mod own;

pub use database::Database;
pub use finish::finish_in;
pub use rusqlite;

use crate::ending::conduct_in_engine;
use crate::error::{BoxError, Error};
use rusqlite::Connection;
use semel::local::{Local, LocalEnding};
use semel::{Engine, Intent, RecordedOutcome};
use std::sync::Arc;

/// The work of a local command.
type Work = Arc<dyn Fn(&Connection, Local) -> Result<LocalEnding, BoxError> + Send + Sync>;

/// Runs `intent` exactly once, in one transaction with its record. `Ok` means that the command took effect,
/// now or in an earlier call with the key. Everything else is an error, also a refusal by the work and a key
/// that is bound to another payload ([`Error::Refused`]).
///
/// `work` runs on the thread that writes to the file. Its return value decides:
///
/// - [`LocalEnding::Succeeded`]: its writes are committed together with the outcome.
/// - [`LocalEnding::Refused`]: everything it wrote is undone, and the refusal is committed without it.
/// - An error: everything it wrote is undone, without a trace that it ran. The next call with the key runs it
///   again.
///
/// **It may run several times** before one run commits, if other work in the same group commit fails or
/// another process was faster. It must have no other effect than its writes to the connection.
///
/// **All other writers to the file wait for it.** Read files and call services before; a statement that runs
/// longer than [`Database::limit`] is interrupted, and the work undone with [`Error::Overran`]. Time that is
/// not spent in SQLite cannot be limited.
///
/// The connection is shared with the store. `BEGIN`, `COMMIT`, `ROLLBACK`, `SAVEPOINT`, `ATTACH` and `PRAGMA`
/// are refused as not authorized, and so are temporary tables and changes of the store's own (`semel_…`);
/// leave the connection's hooks and functions as they are. The engine refuses to be called from inside
/// ([`semel::Error::InsideLocalWork`]).
///
/// Whatever the work does, including panics and rollbacks, does not affect others in the group commit. A
/// deferred foreign key that it leaves violated is noticed when it returns, and undoes it with
/// [`Error::Violated`]: no other work can repair it.
///
/// Duplicates wait for as long as the [intent](Intent::waiting) allows and get the outcome; after that they
/// are refused as in progress.
pub async fn transact<W>(
    engine: &Engine,
    database: &Database,
    intent: Intent,
    work: W,
) -> Result<RecordedOutcome, Error>
where
    W: Fn(&Connection, Local) -> Result<LocalEnding, BoxError> + Send + Sync + 'static,
{
    database.check(engine).await?;
    let (database, work): (_, Work) = (database.clone(), Arc::new(work));
    let answer = conduct_in_engine(engine, intent, move |command| conduct::conduct(command, database, work));
    Ok(answer.await?.into_outcome()?)
}
