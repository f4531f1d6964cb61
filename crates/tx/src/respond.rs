//! The error as a response of an axum handler. The documents are those of the HTTP layer.

use crate::error::Error;
use axum_core::response::{IntoResponse, Response};
use semel_http::{Form, OutcomeHint, Problem, response_of_refusal};

/// The response that the layer of `semel-http` would send. The details of an error go to the log, never to the client.
///
/// Under a layer of class `external` or `downstream` it counts as in doubt, whatever its status: this error says what
/// became of a transaction, and nothing about what the handler did before. Answer with a response of your own if nothing
/// took effect.
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let mut response = answer(&self);
        response.extensions_mut().insert(OutcomeHint::Unknown);
        response
    }
}

fn answer(error: &Error) -> Response {
    let problem = match error {
        // What the caller gets anyway: an outcome, or the reason why there is none.
        Error::Refused(refusal) => return response_of_refusal(refusal).into_response(),
        Error::Engine(error) => Problem::of_error(error),
        Error::OtherStore { .. } => Problem::misconfigured(),
        Error::Store(error) if !error.is_retryable() => Problem::misconfigured(),
        Error::ClockNotTrusted => Problem::clock_not_trusted(None),
        Error::CommitInDoubt { operation_id, .. } => Problem::commit_in_doubt(*operation_id),
        Error::Overtaken(operation_id) => Problem::overtaken(*operation_id),
        Error::TransactionLeft(operation_id) => Problem::not_recorded(*operation_id),
        Error::TransactionEnded(operation_id) => Problem::rolled_back(false).about(*operation_id),
        // Refused by the database, not unreachable.
        Error::Database(sqlx::Error::Database(_))
        | Error::Work(_)
        | Error::Panicked
        | Error::Overran
        | Error::Violated
        | Error::StatementFailed => Problem::rolled_back(error.is_retryable()),
        // The work may have run.
        Error::Closing | Error::StaleSnapshot | Error::CommitTooLate | Error::Database(_) => {
            Problem::rolled_back_for_now()
        }
        Error::Store(_) => Problem::store_unavailable(),
    };
    tracing::warn!(%error, "a local command has no outcome");
    problem.into_response(Form::Json, "").into_response()
}
