//! The error as a response of an axum handler. The documents are those of the HTTP layer.

use crate::error::Error;
use axum_core::response::{IntoResponse, Response};
use semel_http::{Form, Problem, response_of_refusal};

/// The response that the layer of `semel-http` would send. The details of an error go to the log, never to the client.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let problem = match &self {
            // What the caller gets anyway: an outcome, or the reason why there is none.
            Self::Refused(refusal) => return response_of_refusal(refusal).into_response(),
            Self::Engine(error) => Problem::of_error(error),
            Self::OtherStore { .. } => Problem::misconfigured(),
            Self::Store(error) if !error.is_retryable() => Problem::misconfigured(),
            Self::ClockNotTrusted => Problem::clock_not_trusted(None),
            Self::CommitInDoubt { operation_id, .. } => Problem::commit_in_doubt(*operation_id),
            Self::Overtaken(operation_id) => Problem::overtaken(*operation_id),
            Self::TransactionLeft(operation_id) => Problem::not_recorded(*operation_id),
            Self::TransactionEnded(operation_id) => Problem::rolled_back(false).about(*operation_id),
            // Refused by the database, not unreachable.
            Self::Database(sqlx::Error::Database(_))
            | Self::Work(_)
            | Self::Panicked
            | Self::Overran
            | Self::Violated
            | Self::StatementFailed => Problem::rolled_back(self.is_retryable()),
            // The work ran, and the store was there.
            Self::Closing | Self::StaleSnapshot | Self::CommitTooLate => Problem::rolled_back_for_now(),
            Self::Database(_) | Self::Store(_) => Problem::store_unavailable(),
        };
        tracing::warn!(error = %self, "a local command has no outcome");
        problem.into_response(Form::Json, "").into_response()
    }
}
