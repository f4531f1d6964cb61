//! Commits on a connection of the application's own.

use super::rows::code;
use crate::error::BoxError;
use semel::local::{Patience, Unanswered};
use sqlx::{Sqlite, Transaction};

/// What is known of a commit.
pub(super) enum Committed {
    Yes,
    /// SQLite says that it was not made. The transaction is rolled back.
    No(sqlx::Error),
    /// The file may have it.
    Unknown(BoxError),
}

pub(super) async fn commit(
    transaction: Transaction<'_, Sqlite>,
    patience: &Patience,
    unanswered: Unanswered,
) -> Committed {
    match patience.bounded(transaction.commit()).await {
        Some(Ok(())) => {
            unanswered.answered();
            Committed::Yes
        }
        Some(Err(sqlx::Error::Database(error))) if is_not_committed(code(&*error)) => {
            unanswered.answered();
            Committed::No(sqlx::Error::Database(error))
        }
        Some(Err(error)) => Committed::Unknown(error.into()),
        None => Committed::Unknown("the disk did not answer in time".into()),
    }
}

/// Whether an error of COMMIT proves that nothing was committed: a constraint, a lock that was not had, a full disk, or no
/// transaction any more.
fn is_not_committed(code: i32) -> bool {
    const ERROR: i32 = 1;
    const BUSY: i32 = 5;
    const FULL: i32 = 13;
    const CONSTRAINT: i32 = 19;
    matches!(code & 0xff, ERROR | BUSY | FULL | CONSTRAINT)
}
