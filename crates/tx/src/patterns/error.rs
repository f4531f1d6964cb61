//! Why a pattern has no answer.

use super::dialect::Dialect;
use crate::error::BoxError;
use std::fmt;

/// Why a pattern has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum PatternError {
    /// No transaction is open on the connection, or it was opened by hand instead of with `sqlx`. Nothing was
    /// written.
    NoTransaction,
    /// A transaction is open, but this call begins and commits its own. Nothing was written.
    InTransaction,
    /// The work has ended the caller's transaction, or left a nested one open. Nothing was processed, and what
    /// the transaction had written before is lost.
    ///
    /// SQLite rolls a transaction back for some errors (`INSERT OR ROLLBACK`, `RAISE(ROLLBACK)`, a full disk).
    /// sqlx does so on PostgreSQL if a nested `begin` fails. Nothing that is written afterwards can be
    /// committed. Drop the transaction, and begin again. On PostgreSQL its session has been ended, so a
    /// connection that is not from a pool has to be opened again.
    TransactionEnded,
    /// An argument is not allowed. Nothing was written.
    Invalid(String),
    /// Another transaction holds the same message, operation or reference, and did not end in time. Nothing
    /// was written; try again.
    Busy(BoxError),
    /// A deadlock or a serialization failure. Roll the whole transaction back and run it again.
    Conflict(BoxError),
    /// The work failed. What it wrote was undone, and nothing is marked.
    Work(BoxError),
    /// The same ID was used with another content: an amount, or a body.
    Mismatch(String),
    /// The attempt was overtaken while it ran: its operation is done, or belongs to a newer fence. Roll the
    /// transaction back.
    Overtaken,
    /// The tables are missing.
    MissingTables(BoxError),
    /// It is unknown whether the transaction has committed. Run the same again with the same IDs: committed
    /// work is not repeated.
    CommitInDoubt(BoxError),
    /// The database refused a statement, or the connection failed. Roll the transaction back.
    Database(BoxError),
}

impl PatternError {
    /// Whether the same call, with the same IDs in a new transaction, may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NoTransaction
            | Self::InTransaction
            | Self::TransactionEnded
            | Self::Invalid(_)
            | Self::Mismatch(_)
            | Self::Overtaken
            | Self::MissingTables(_) => false,
            Self::Busy(_)
            | Self::Conflict(_)
            | Self::Work(_)
            | Self::CommitInDoubt(_)
            | Self::Database(_) => true,
        }
    }
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTransaction => f.write_str(
                "nothing was written: no transaction is open on the connection. Open one with sqlx (begin), not with a BEGIN by hand",
            ),
            Self::InTransaction => f.write_str(
                "nothing was written: a transaction is open on the connection, and this call begins its own",
            ),
            Self::TransactionEnded => f.write_str(
                "nothing was processed, and the transaction is over with everything that it had written: its work ended it, by a COMMIT or \
                 ROLLBACK, by an error after which SQLite rolls back, or by a nested transaction that sqlx could not begin or that was left \
                 open. Nothing more can be committed on it; begin again, and correct the work",
            ),
            Self::Invalid(why) | Self::Mismatch(why) => write!(f, "nothing was written: {why}"),
            Self::Busy(error) => write!(
                f,
                "nothing was written: another transaction holds the same id and did not end in time ({error}). Try again"
            ),
            Self::Conflict(error) => write!(
                f,
                "conflict with another transaction: {error}. Roll the transaction back and run it again"
            ),
            Self::Work(error) => write!(f, "the work failed and was undone: {error}"),
            Self::Overtaken => f.write_str(
                "a newer attempt has taken the operation over, or finished it. Roll the transaction back, then call again for the result",
            ),
            Self::MissingTables(error) => write!(
                f,
                "the tables are missing or older than this build: {error}. Run `semel schema apply --store URL`; where they are in another \
                 schema than `semel`, name it with Tables::in_schema"
            ),
            Self::CommitInDoubt(error) => write!(
                f,
                "it is not known whether the transaction has committed: {error}. Run the same again with the same ids"
            ),
            Self::Database(error) => write!(f, "the database refused: {error}. Roll the transaction back"),
        }
    }
}

impl std::error::Error for PatternError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Busy(error)
            | Self::Conflict(error)
            | Self::Work(error)
            | Self::MissingTables(error)
            | Self::CommitInDoubt(error)
            | Self::Database(error) => Some(&**error),
            _ => None,
        }
    }
}

/// What an error of the database means for its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A lock was not obtained in time, or the whole statement took too long.
    Busy,
    /// The whole transaction must be run again.
    Conflict,
    /// A table or a column is missing.
    MissingTables,
    /// Any other error of the database.
    Refused,
    /// If it was about to commit, the result is unknown.
    Unknown,
}

impl Fault {
    /// The error of one of our statements.
    pub(super) fn of_statement(self, error: impl Into<BoxError>) -> PatternError {
        let error = error.into();
        match self {
            Self::Busy => PatternError::Busy(error),
            Self::Conflict => PatternError::Conflict(error),
            Self::MissingTables => PatternError::MissingTables(error),
            Self::Refused | Self::Unknown => PatternError::Database(error),
        }
    }
}

pub(super) fn failed<C: Dialect>(error: sqlx::Error) -> PatternError {
    C::fault(&error).of_statement(error)
}

/// The conflicting row was gone each time that it was read.
pub(super) fn unsettled() -> PatternError {
    PatternError::Busy("its row changed each time that it was looked at".into())
}

/// The first database error in the chain of `error`, and its meaning.
pub(super) fn fault_in<C: Dialect>(error: &(dyn std::error::Error + 'static)) -> Option<Fault> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<sqlx::Error>() {
            return Some(C::fault(error));
        }
        next = error.source();
    }
    None
}
