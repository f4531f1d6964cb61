//! The commit, and what is known about it.

use super::dialect::{CommitStatus, Dialect};
use crate::ending::Written;
use crate::error::{BoxError, Error};
use semel::ExecuteResponse;
use semel::local::{DatabaseTimeouts, Unanswered};
use std::time::Duration;

/// What is known about a commit.
pub(crate) enum Committed {
    Yes,
    /// It did not happen, and will not.
    No(Error),
    Unknown(BoxError),
}

/// Waits for the answer to a commit, at most the store's timeout after `written_at`, when the last write
/// began: a change of the hashing secret waits a little longer than that. After that the commit is not even
/// sent.
pub(crate) async fn commit<D: Dialect>(
    timeouts: &DatabaseTimeouts,
    unanswered: Unanswered,
    committing: impl Future<Output = Result<(), sqlx::Error>>,
    written_at: Duration,
    seen: &D::Seen,
) -> Committed {
    let left = timeouts.store_timeout().saturating_sub(timeouts.uptime().saturating_sub(written_at));
    if left.is_zero() {
        unanswered.answered();
        return Committed::No(Error::CommitTooLate);
    }
    match timeouts.within(left, committing).await {
        // The wait for the standby may have been cancelled: sqlx does not return the warning.
        Some(Ok(())) if is_unconfirmed(timeouts, D::unconfirmed_timeline(seen)).await => {
            Committed::Unknown("it is not known whether the server's standby has the commit".into())
        }
        Some(Ok(())) => {
            unanswered.answered();
            Committed::Yes
        }
        Some(Err(error)) if D::is_rolled_back(&error) => {
            unanswered.answered();
            Committed::No(Error::Database(error))
        }
        Some(Err(error)) => Committed::Unknown(error.into()),
        None => Committed::Unknown("the database did not answer in time".into()),
    }
}

/// Whether a commit on this timeline has to be confirmed, and cannot be.
async fn is_unconfirmed(timeouts: &DatabaseTimeouts, timeline: Option<&str>) -> bool {
    match timeline {
        Some(timeline) => !timeouts.has_confirmed_commits(timeline).await,
        None => false,
    }
}

impl Written {
    /// Settles a commit without an answer. The work is not run again.
    pub(crate) async fn settle<D: Dialect>(
        self,
        target: &D::Target,
        seen: &D::Seen,
        cause: BoxError,
    ) -> Result<ExecuteResponse, Error> {
        let (command, writes) = (&self.command, &self.writes);
        let location = (command.ids(), writes.id);
        let settling = D::settle(target, seen, &command.timeouts(), location, |found| {
            command.write_result(writes, found)
        })
        .await;
        match settling {
            CommitStatus::Committed => Ok(self.committed()),
            CommitStatus::RolledBack => {
                self.rolled_back();
                Err(lost(cause))
            }
            CommitStatus::Unknown => {
                command.commit_in_doubt(&self.attempt);
                let operation_id = self.attempt.local().operation_id;
                Err(Error::CommitInDoubt { operation_id, source: cause })
            }
        }
    }
}

/// The commit never arrived.
pub(super) fn lost(cause: BoxError) -> Error {
    Error::Database(sqlx::Error::Io(std::io::Error::other(cause)))
}
