//! Why a local command has no answer.

use semel::{Refusal, StoreId};
use semel_core::id::OperationId;
use std::fmt;

/// Any error of the work.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a local command has no answer. Unless the variant says otherwise, nothing of the command is in the
/// database.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused to run it.
    Engine(semel::Error),
    /// There is no success for the caller: the work refused the command, in this call or in an earlier one; the
    /// key is bound to another payload; a duplicate is running; the outcome has expired. The reason says which.
    Refused(Refusal),
    /// The pool uses another database than the engine's store, so no transaction there could contain its
    /// record.
    OtherStore {
        /// The engine's store.
        engine: StoreId,
        /// The store that the pool uses; `None` if there is none.
        pool: Option<StoreId>,
    },
    /// The work failed, and its transaction was rolled back.
    Work(BoxError),
    /// The work panicked, and its transaction was rolled back.
    Panicked,
    /// The work took longer than its policy allows, and its transaction was rolled back.
    Overran,
    /// The engine shuts down; the transaction was rolled back.
    Closing,
    /// The work ended the transaction itself, or left a nested one open. Its committed changes have no
    /// record.
    ///
    /// sqlx ends it too if a nested `begin` of the work fails, which it does after an error that the work has
    /// ignored: then each later statement of the work was committed on its own.
    TransactionLeft(OperationId),
    /// The work ended the transaction itself. Everything was rolled back.
    TransactionEnded(OperationId),
    /// The work left a deferred foreign key violated, so it could not be committed. It was rolled back.
    Violated,
    /// A statement of the transaction failed and its error was ignored; after that PostgreSQL commits
    /// nothing. The transaction was rolled back.
    StatementFailed,
    /// The database refused a statement. The transaction was rolled back.
    Database(sqlx::Error),
    /// The database gave an unexpected answer. The transaction was rolled back.
    Store(semel_core::store::Error),
    /// Another transaction wrote the command's record meanwhile, or this transaction's snapshot is older than
    /// the record. The transaction was rolled back; a new one sees the record.
    StaleSnapshot,
    /// The attempt was settled by someone else, or its record is gone: nothing of it can be stored any more.
    /// The transaction was rolled back.
    Overtaken(OperationId),
    /// The clock is not trusted, so an outcome cannot be dated. The transaction was rolled back.
    ClockNotTrusted,
    /// The record was written too long ago: a commit now could follow a change of the hashing secret, and
    /// others would not find it. The transaction was rolled back; run the command again.
    CommitTooLate,
    /// It is unknown whether the transaction has committed, and the database could not be asked. A retry with
    /// the *same* key settles it; the work is not run again until it is known to be rolled back.
    CommitInDoubt {
        /// The public name of the command.
        operation_id: OperationId,
        /// The error of the commit.
        source: BoxError,
    },
}

impl Error {
    /// Whether the same call, with the same key, may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_retryable(),
            Self::Refused(refusal) => refusal.is_retryable(),
            Self::OtherStore { .. }
            | Self::TransactionLeft(_)
            | Self::TransactionEnded(_)
            | Self::Violated
            | Self::Overtaken(_) => false,
            Self::Store(error) => error.is_retryable(),
            // Only the work knows; nothing prevents a retry.
            Self::Work(_)
            | Self::Panicked
            | Self::Overran
            | Self::Closing
            | Self::StatementFailed
            | Self::Database(_)
            | Self::StaleSnapshot
            | Self::ClockNotTrusted
            | Self::CommitTooLate
            | Self::CommitInDoubt { .. } => true,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::OtherStore { engine, pool: Some(pool) } => write!(
                f,
                "nothing was run: the pool leads to the database of store {pool}, and the engine works on store {engine}. \
                 Connect both to the same database"
            ),
            Self::OtherStore { engine, pool: None } => write!(
                f,
                "nothing was run: the pool leads to a database without the tables of store {engine}, which the engine works on. \
                 Connect both to the same database; where the tables are in another schema than `semel`, name it with \
                 Database::schema"
            ),
            Self::Work(error) => write!(f, "the work failed and its transaction was rolled back: {error}"),
            Self::Panicked => f.write_str("the work panicked and its transaction was rolled back"),
            Self::Overran => {
                f.write_str("the work took longer than its deadline and its transaction was rolled back")
            }
            Self::Closing => f.write_str("the engine is shutting down; the transaction was rolled back"),
            Self::TransactionLeft(operation_id) => write!(
                f,
                "the work of operation {operation_id} ended its transaction itself, or left a nested one open. What it committed \
                 has no record and can happen again: do not run COMMIT or ROLLBACK in the work (on SQLite, INSERT OR ROLLBACK and \
                 RAISE(ROLLBACK) end it as well)"
            ),
            Self::TransactionEnded(operation_id) => write!(
                f,
                "nothing was committed: the work of operation {operation_id} rolled its transaction back (ON CONFLICT ROLLBACK or \
                 RAISE(ROLLBACK) does that as well). Return an error instead"
            ),
            Self::Violated => f.write_str(
                "nothing was committed: the work left a deferred foreign key violated. Insert the rows that it refers to in the \
                 same work",
            ),
            Self::StatementFailed => f.write_str(
                "nothing was committed: a statement of the transaction failed and its error was ignored. Return the error, or run a \
                 statement that may fail in a nested transaction",
            ),
            Self::Database(error) => write!(f, "the transaction was rolled back: {error}"),
            Self::Store(error) => write!(f, "the transaction was rolled back: {error}"),
            Self::StaleSnapshot => f.write_str(
                "the transaction was rolled back: the command's record was written by another one since its snapshot was taken. \
                 Try again with a new transaction and the same key",
            ),
            Self::Overtaken(operation_id) => write!(
                f,
                "the transaction was rolled back: the attempt of operation {operation_id} was settled by someone else. Look at its \
                 record before anything is done about its effect"
            ),
            Self::ClockNotTrusted => {
                f.write_str("the transaction was rolled back, since the clock is not trusted; try again later")
            }
            Self::CommitTooLate => f.write_str(
                "the transaction was rolled back, since its record was written longer ago than the store's timeout allows; try again, \
                 and commit right after the record is written",
            ),
            Self::CommitInDoubt { operation_id, source } => write!(
                f,
                "it is not known yet whether the transaction of operation {operation_id} has committed: {source}. Try again with \
                 the same key to find out"
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::Refused(refusal) => Some(refusal),
            Self::Work(error) | Self::CommitInDoubt { source: error, .. } => Some(&**error),
            Self::Database(error) => Some(error),
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<semel::Error> for Error {
    fn from(error: semel::Error) -> Self {
        Self::Engine(error)
    }
}
