//! From the engine's answer to the response for the client.
//!
//! One response or problem for every answer and every error of the engine. It depends only on that answer and the
//! route's settings.

use super::ending::AttemptResponse;
use crate::body::Body;
use crate::layer_state::LayerState;
use crate::names;
use crate::problem::{Code, Failure, Form, Problem};
use crate::route::{CompiledRoute, MismatchStatus};
use crate::stored::{rebuild, replay};
use http::{HeaderValue, Response};
use semel::core::classify::Ending;
use semel::core::id::OperationId;
use semel::core::outcome::Outcome;
use semel::core::scope::Operation;
use semel::{RanAttempt, RefusalReason, Replayed, RequestOutcome, Stored, WorkResult};

/// Builds the responses to one request.
pub(crate) struct Responder<'a> {
    pub(crate) state: &'a LayerState,
    pub(crate) route: &'a CompiledRoute,
    pub(crate) form: Form,
    /// The operation's name, for finding its reconciler.
    pub(crate) operation: Operation,
}

impl Responder<'_> {
    /// The response if this call ran the attempt.
    pub(crate) fn ran(&self, id: OperationId, ran: RanAttempt<AttemptResponse>) -> Response<Body> {
        let mut response = match ran.local {
            AttemptResponse::Response(response) => *response,
            AttemptResponse::Failed(failure) => self.respond(self.failure(failure, id, ran.repeatable)),
            AttemptResponse::Late => self.respond(Problem::deadline_exceeded().about(id)),
        };
        response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
        replay::mark(response.headers_mut(), ran.stored);
        response
    }

    /// The problem for an answer without an outcome, under the route's settings.
    pub(crate) fn refusal<L>(&self, id: OperationId, request_outcome: &RequestOutcome<L>) -> Problem {
        // A record that cannot be read cannot be probed. Answers with an outcome do not get here.
        let reason = request_outcome.refusal_reason().unwrap_or(RefusalReason::Unreadable);
        let problem = Problem::of_refusal(id, &reason);
        match reason {
            RefusalReason::InProgress { .. } | RefusalReason::Unreadable => {
                problem.with_status_at(self.state.status_at(id))
            }
            RefusalReason::Mismatch if self.route.settings.mismatch == MismatchStatus::Conflict => {
                problem.with_status(409)
            }
            RefusalReason::Unknown { repeatable } => {
                problem.retryable(self.doubt_ends(repeatable)).with_status_at(self.state.status_at(id))
            }
            _ => problem,
        }
    }

    /// A problem as a response.
    fn respond(&self, problem: Problem) -> Response<Body> {
        problem.into_response(self.form, self.state.prefix())
    }

    /// The ending of an attempt whose service could not be reached. Its duplicates get the same response.
    pub(crate) fn unreachable(&self, failure: Failure, id: OperationId) -> WorkResult<AttemptResponse> {
        let response = self.respond(self.failure(failure, id, false));
        let headers = response.headers().iter().filter(|(name, _)| !names::is_control(name));
        let headers: Vec<_> = headers.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let status = response.status().as_u16();
        let body = response.body().data().unwrap_or_default();
        let ending = Ending::NotApplied(Some(Outcome::http(status, headers, body)));
        WorkResult::new(ending, AttemptResponse::Failed(failure)).because(failure.why())
    }

    /// The ending of an attempt that had nothing to send.
    pub(crate) fn unsent(&self, id: OperationId) -> WorkResult<AttemptResponse> {
        self.unreachable(Failure::Unreachable, id)
    }

    /// The response if the original one was not retained.
    pub(crate) fn not_retained(&self, id: OperationId, replayed: &Replayed) -> Response<Body> {
        marked(id, replayed.stored, self.respond(Problem::not_retained(id)))
    }

    /// `repeatable`: whether a retry may be the next attempt if this one is in doubt.
    fn failure(&self, failure: Failure, id: OperationId, repeatable: bool) -> Problem {
        let problem = match failure {
            Failure::Unreachable => Problem::new(
                Code::Unreachable,
                "The service could not be reached. Nothing was sent; retry with the same key.",
            )
            .retryable(true),
            Failure::ConnectTimeout => Problem::new(
                Code::Unreachable,
                "The service could not be reached in time. Nothing was sent; retry with the same key.",
            )
            .with_status(504)
            .retryable(true),
            Failure::Broken => Problem::new(
                Code::UpstreamFailed,
                "The service failed while it processed the request. The request may have taken effect.",
            )
            .retryable(self.doubt_ends(repeatable)),
            Failure::TimedOut => Problem::new(
                Code::UpstreamTimeout,
                "The service did not answer in time. The request may have taken effect.",
            )
            .retryable(self.doubt_ends(repeatable)),
        };
        let status_at = if failure.nothing_was_sent() { None } else { self.state.status_at(id) };
        problem.about(id).with_status_at(status_at)
    }

    /// Whether a doubt can be resolved without an operator: by a retry, if the record allows another attempt, or by a
    /// reconciler. The record's own class decides, not the route's.
    fn doubt_ends(&self, repeatable: bool) -> bool {
        repeatable || self.state.engine.has_reconciler(self.operation.as_str())
    }
}

/// Adds the operation ID and the expiry.
pub(crate) fn marked(
    id: OperationId,
    stored: impl Into<Option<Stored>>,
    mut response: Response<Body>,
) -> Response<Body> {
    response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
    replay::mark(response.headers_mut(), stored.into());
    response
}

/// The stored response, unless it cannot be replayed.
pub(crate) fn replayed(id: OperationId, replayed: &Replayed) -> Option<Response<Body>> {
    let mut response = replay::response(&replayed.outcome)?;
    let how = if rebuild::is_found(&replayed.outcome) { "rebuilt" } else { "true" };
    response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static(how));
    Some(marked(id, replayed.stored, response))
}

/// A response that was rebuilt.
pub(crate) fn rebuilt(id: OperationId, replayed: &Replayed, mut response: Response<Body>) -> Response<Body> {
    names::strip(response.headers_mut());
    response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static("rebuilt"));
    marked(id, replayed.stored, response)
}
