//! From the engine's answer to the response for the client.
//!
//! One response or problem for every answer and every error of the engine. It depends only on that answer and the
//! route's terms.

use crate::body::Body;
use crate::failure::Failure;
use crate::layer::Shared;
use crate::problem::{Code, Form, Problem};
use crate::response::Local;
use crate::route::Ready;
use crate::terms::MismatchStatus;
use crate::{names, rebuild, replay};
use http::{HeaderValue, Response};
use semel::core::classify::Ending;
use semel::core::fingerprint::ErrorKind;
use semel::core::id::OperationId;
use semel::core::outcome::Outcome;
use semel::core::scope::Operation;
use semel::{Ended, Error, Ran, Replayed, RequestOutcome};
use std::time::Duration;

/// When a client should retry if the store is unavailable.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

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

    /// The problem for an answer without an outcome.
    pub(crate) fn refusal<L>(&self, id: OperationId, request_outcome: &RequestOutcome<L>) -> Problem {
        match request_outcome {
            RequestOutcome::InProgress { retry_after } => {
                let detail =
                    "A request with this idempotency key is being processed. Retry later with the same key.";
                let problem = Problem::new(Code::InProgress, detail).retryable_after(*retry_after);
                problem.about(id).with_status_at(self.shared.status_at(id))
            }
            RequestOutcome::Mismatch => {
                let detail = "This idempotency key was used for a different request. Nothing was run; use \
                              a new key for a new request.";
                let problem = Problem::new(Code::Mismatch, detail).about(id);
                match self.ready.terms.mismatch {
                    MismatchStatus::UnprocessableContent => problem,
                    MismatchStatus::Conflict => problem.with_status(409),
                }
            }
            RequestOutcome::Expired => {
                let detail =
                    "The original request has had its outcome, which expired or was erased. Nothing was run.";
                Problem::new(Code::Expired, detail).about(id)
            }
            RequestOutcome::AttemptsExhausted => {
                let detail = "All allowed attempts for this idempotency key were made, and none took effect.";
                Problem::new(Code::AttemptsExhausted, detail).about(id)
            }
            RequestOutcome::ClockNotTrusted { retry_after } => {
                let detail = "Nothing was run: the clock of the idempotency store is not trusted at the moment. \
                              Retry later with the same key.";
                Problem::new(Code::ClockNotTrusted, detail).retryable_after(*retry_after).about(id)
            }
            RequestOutcome::Unknown { repeatable } => self.unknown(id, self.doubt_ends(*repeatable)),
            // An unreadable record cannot be probed. The other two are not refusals and do not get here.
            RequestOutcome::Unreadable | RequestOutcome::Ran(_) | RequestOutcome::Replayed(_) => {
                self.unknown(id, false)
            }
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
        let detail =
            "The original request was processed, but its response was not retained. Nothing was run.";
        let response = self.respond(Problem::new(Code::NotRetained, detail).about(id));
        marked(id, replayed, response)
    }

    fn unknown(&self, id: OperationId, retryable: bool) -> Problem {
        let detail = "The original request may have taken effect. Nothing more was run under this key. Report the \
                      operation ID to the service's operators, who can find out.";
        let problem = Problem::new(Code::Unknown, detail).about(id).retryable(retryable);
        problem.with_status_at(self.shared.status_at(id))
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
            let detail = "This service is not configured to protect requests like this one. Nothing was run; the operators of the \
                          service have to fix it.";
            Problem::new(Code::StoreUnavailable, detail).with_status(500)
        }
        // In all other cases nothing was run: without a claim, nothing runs.
        _ => {
            let detail = "The idempotency store is unavailable, so nothing was run. Retry \
                          later with the same key.";
            Problem::new(Code::StoreUnavailable, detail).retryable_after(STORE_RETRY_AFTER)
        }
    }
}

/// Adds the operation ID and the expiry.
fn marked(id: OperationId, replayed: &Replayed, mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
    replay::mark(response.headers_mut(), Some(replayed.stored));
    response
}

/// The stored response, unless it cannot be replayed.
pub(crate) fn replayed(id: OperationId, replayed: &Replayed) -> Option<Response<Body>> {
    let mut response = replay::response(&replayed.outcome)?;
    let how = if rebuild::is_found(&replayed.outcome) { "rebuilt" } else { "true" };
    response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static(how));
    Some(marked(id, replayed, response))
}

/// A response that was rebuilt.
pub(crate) fn rebuilt(id: OperationId, replayed: &Replayed, mut response: Response<Body>) -> Response<Body> {
    names::strip(response.headers_mut());
    response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static("rebuilt"));
    marked(id, replayed, response)
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
