//! From the engine's answer to the response for the client.
//!
//! One response or problem for every answer and every error of the engine. It depends only on that answer and the
//! route's terms.

use super::ending::Local;
use crate::body::Body;
use crate::layer_state::Shared;
use crate::names;
use crate::problem::{Code, Failure, Form, Problem};
use crate::route::{MismatchStatus, Ready};
use crate::stored::{rebuild, replay};
use http::{HeaderValue, Response};
use semel::core::classify::Ending;
use semel::core::fingerprint::ErrorKind;
use semel::core::id::OperationId;
use semel::core::outcome::Outcome;
use semel::core::scope::Operation;
use semel::{Ended, Error, Ran, RefusalReason, Replayed, RequestOutcome, Stored};

/// Builds the responses to one request.
pub(crate) struct Responder<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) ready: &'a Ready,
    pub(crate) form: Form,
    /// The operation's name, for finding its reconciler.
    pub(crate) operation: Operation,
}

impl Responder<'_> {
    /// The response if this call ran the attempt.
    pub(crate) fn ran(&self, id: OperationId, ran: Ran<Local>) -> Response<Body> {
        let mut response = match ran.local {
            Local::Response(response) => *response,
            Local::Failed(failure) => self.respond(self.failure(failure, id, ran.repeatable)),
        };
        response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
        replay::mark(response.headers_mut(), ran.stored);
        response
    }

    /// The problem for an answer without an outcome, under the route's terms.
    pub(crate) fn refusal<L>(&self, id: OperationId, request_outcome: &RequestOutcome<L>) -> Problem {
        // A record that cannot be read cannot be probed. Answers with an outcome do not get here.
        let reason = request_outcome.refusal_reason().unwrap_or(RefusalReason::Unreadable);
        let problem = refused(id, &reason);
        match reason {
            RefusalReason::InProgress { .. } | RefusalReason::Unreadable => {
                problem.with_status_at(self.shared.status_at(id))
            }
            RefusalReason::Mismatch if self.ready.terms.mismatch == MismatchStatus::Conflict => {
                problem.with_status(409)
            }
            RefusalReason::Unknown { repeatable } => {
                problem.retryable(self.doubt_ends(repeatable)).with_status_at(self.shared.status_at(id))
            }
            _ => problem,
        }
    }

    /// A problem as a response.
    fn respond(&self, problem: Problem) -> Response<Body> {
        problem.into_response(self.form, self.shared.prefix())
    }

    /// The ending of an attempt whose service could not be reached. Its duplicates get the same response.
    pub(crate) fn unreachable(&self, failure: Failure, id: OperationId) -> Ended<Local> {
        let response = self.respond(self.failure(failure, id, false));
        let headers = response.headers().iter().filter(|(name, _)| !names::is_control(name));
        let headers: Vec<_> = headers.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let status = response.status().as_u16();
        let body = response.body().data().unwrap_or_default();
        let ending = Ending::NotApplied(Some(Outcome::http(status, headers, body)));
        Ended::new(ending, Local::Failed(failure)).because(failure.why())
    }

    /// The ending of an attempt that had nothing to send.
    pub(crate) fn unsent(&self, id: OperationId) -> Ended<Local> {
        self.unreachable(Failure::Unreachable, id)
    }

    /// The response if the original one was not retained.
    pub(crate) fn not_retained(&self, id: OperationId, replayed: &Replayed) -> Response<Body> {
        marked(id, replayed.stored, self.respond(not_retained(id)))
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
        let status_at = if failure.nothing_was_sent() { None } else { self.shared.status_at(id) };
        problem.about(id).with_status_at(status_at)
    }

    /// Whether a doubt can be resolved without an operator: by a retry, if the record allows another attempt, or by a
    /// reconciler. The record's own class decides, not the route's.
    fn doubt_ends(&self, repeatable: bool) -> bool {
        repeatable || self.shared.engine.has_reconciler(self.operation.as_str())
    }
}

/// The problem for a request that cannot be fingerprinted.
pub(crate) fn fingerprint(error: &semel::core::fingerprint::Error) -> Problem {
    match error.kind() {
        ErrorKind::TooLarge => Problem::new(Code::TooLarge, format!("Nothing was run. {error}")),
        _ => Problem::new(
            Code::Unfingerprintable,
            format!("The body cannot be compared with a retry, so nothing was run. {error}"),
        ),
    }
}

/// The problem for an error of the engine.
pub(crate) fn error(error: &Error) -> Problem {
    match error {
        Error::Fingerprint(error) => fingerprint(error),
        Error::Quota(exceeded) => {
            let detail = "Too many requests with new idempotency keys. Nothing was run; retry later with the same key.";
            Problem::new(Code::Quota, detail).retryable_after(exceeded.retry_after)
        }
        // Waiting does not fix a configuration.
        Error::NoSealingKey | Error::Policy(_) | Error::LocalClass | Error::LocalRecord(_) => {
            tracing::error!(%error, "a request cannot be protected with this configuration");
            Problem::misconfigured()
        }
        // In all other cases nothing was run: without a claim, nothing runs.
        _ => Problem::store_unavailable(),
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

/// The problem for a command without an outcome, if no terms of a route say otherwise.
pub(crate) fn refused(id: OperationId, reason: &RefusalReason) -> Problem {
    match reason {
        RefusalReason::InProgress { retry_after } => {
            let detail =
                "A request with this idempotency key is being processed. Retry later with the same key.";
            Problem::new(Code::InProgress, detail).retryable_after(*retry_after).about(id)
        }
        RefusalReason::Mismatch => {
            let detail = "This idempotency key was used for a different request. Nothing was run; use \
                          a new key for a new request.";
            Problem::new(Code::Mismatch, detail).about(id)
        }
        RefusalReason::Expired => {
            let detail =
                "The original request has had its outcome, which expired or was erased. Nothing was run.";
            Problem::new(Code::Expired, detail).about(id)
        }
        RefusalReason::AttemptsExhausted => {
            let detail = "All allowed attempts for this idempotency key were made, and none took effect.";
            Problem::new(Code::AttemptsExhausted, detail).about(id)
        }
        RefusalReason::ClockNotTrusted { retry_after } => {
            Problem::clock_not_trusted(Some(*retry_after)).about(id)
        }
        RefusalReason::NotApplied => {
            let detail = "The request took no effect; retry with the same key.";
            Problem::new(Code::Unreachable, detail).retryable(true).about(id)
        }
        RefusalReason::Unknown { repeatable } => unknown(id).retryable(*repeatable),
        _ => unknown(id),
    }
}

fn unknown(id: OperationId) -> Problem {
    let detail = "The original request may have taken effect. Nothing more was run under this key. Report the \
                  operation ID to the service's operators, who can find out.";
    Problem::new(Code::Unknown, detail).about(id)
}

pub(crate) fn not_retained(id: OperationId) -> Problem {
    let detail = "The original request was processed, but its response was not retained. Nothing was run.";
    Problem::new(Code::NotRetained, detail).about(id)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_sealing_key_is_not_a_retryable_outage() {
        let local = Error::LocalRecord(OperationId::from_bytes([7; 16]));
        for set_up in [Error::NoSealingKey, Error::LocalClass, local] {
            let request_outcome = error(&set_up).into_response(Form::Json, "");
            assert_eq!(
                (request_outcome.status().as_u16(), request_outcome.headers().get("retry-after")),
                (500, None)
            );
            let document =
                String::from_utf8_lossy(&request_outcome.body().data().unwrap_or_default()).into_owned();
            assert!(document.contains("\"retryable\":false"), "{document}");
        }
        let request_outcome = error(&Error::Closing).into_response(Form::Json, "");
        assert_eq!(
            (request_outcome.status().as_u16(), request_outcome.headers().contains_key("retry-after")),
            (503, true)
        );
    }
}
