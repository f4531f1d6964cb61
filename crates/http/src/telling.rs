//! From what the engine tells to what the client is told.
//!
//! Contents: one response or problem for every answer and every error of the engine. Never here: a word that depends
//! on anything but that answer and the route's terms.

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
use semel::{Ended, Error, Ran, Replayed, Told};
use std::time::Duration;

/// When a client should come back that could not be served for want of the store.
const STORE_RETRY_AFTER: Duration = Duration::from_secs(1);

/// How one request is spoken with.
pub(crate) struct Speaker<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) ready: &'a Ready,
    pub(crate) form: Form,
    /// The operation's name, as reconcilers know it.
    pub(crate) operation: Operation,
}

impl Speaker<'_> {
    /// The response to what this call ran itself.
    pub(crate) fn ran(&self, id: OperationId, ran: Ran<Local>) -> Response<Body> {
        let mut response = match ran.local {
            Local::Response(response) => *response,
            Local::Failed(failure) => self.say(self.failure(failure, id, ran.repeatable)),
        };
        response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
        replay::mark(response.headers_mut(), ran.stored);
        response
    }

    /// Why there is no outcome, where the engine says so.
    pub(crate) fn refusal<L>(&self, id: OperationId, told: &Told<L>) -> Problem {
        match told {
            Told::InProgress { retry_after } => {
                let detail =
                    "A request with this idempotency key is being processed. Retry later, with the same key.";
                let problem = Problem::new(Code::InProgress, detail).retryable_after(*retry_after);
                problem.about(id).with_status_at(self.shared.status_at(id))
            }
            Told::Mismatch => {
                let detail = "This idempotency key was used for a request that is not the same. Nothing was run; send \
                              a different intent with a key of its own.";
                let problem = Problem::new(Code::Mismatch, detail).about(id);
                match self.ready.terms.mismatch {
                    MismatchStatus::UnprocessableContent => problem,
                    MismatchStatus::Conflict => problem.with_status(409),
                }
            }
            Told::Expired => {
                let detail = "The original request was processed, so long ago that its outcome is no longer kept. \
                              Nothing was run.";
                Problem::new(Code::Expired, detail).about(id)
            }
            Told::AttemptsExhausted => {
                let detail =
                    "Every attempt that is allowed for this idempotency key was made, and none took effect.";
                Problem::new(Code::AttemptsExhausted, detail).about(id)
            }
            Told::ClockNotTrusted { retry_after } => {
                let detail = "Nothing was run: the clock of the service that keeps the outcomes is not trusted at the moment. \
                              Retry later, with the same key.";
                Problem::new(Code::ClockNotTrusted, detail).retryable_after(*retry_after).about(id)
            }
            Told::Unknown { repeatable } => self.unknown(id, self.doubt_ends(*repeatable)),
            // What cannot be read is nothing that anybody is asked about. What ran or was replayed is no refusal:
            // anyone who asks all the same learns nothing.
            Told::Unreadable | Told::Ran(_) | Told::Replayed(_) => self.unknown(id, false),
        }
    }

    /// A problem as a response.
    fn say(&self, problem: Problem) -> Response<Body> {
        problem.into_response(self.form, self.shared.prefix())
    }

    /// How an attempt ended whose service could not be reached: its duplicates are told the same.
    pub(crate) fn unreachable(&self, failure: Failure, id: OperationId) -> Ended<Local> {
        let response = self.say(self.failure(failure, id, false));
        let headers = response.headers().iter().filter(|(name, _)| !names::is_control(name));
        let headers: Vec<_> = headers.map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let status = response.status().as_u16();
        let body = response.body().data().unwrap_or_default();
        let ending = Ending::NotApplied(Some(Outcome::http(status, headers, body)));
        Ended::new(ending, Local::Failed(failure)).because(failure.why())
    }

    /// How an attempt ended that had nothing to send.
    pub(crate) fn unsent(&self, id: OperationId) -> Ended<Local> {
        self.unreachable(Failure::Unreachable, id)
    }

    /// What is said where a response was not kept.
    pub(crate) fn not_retained(&self, id: OperationId, replayed: &Replayed) -> Response<Body> {
        let detail = "The original request was processed, and its response was not kept. Nothing was run.";
        let response = self.say(Problem::new(Code::NotRetained, detail).about(id));
        marked(id, replayed, response)
    }

    fn unknown(&self, id: OperationId, retryable: bool) -> Problem {
        let detail = "Whether the original request took effect cannot be told. Nothing more was run under this key; \
                      whoever runs the service can find out by the operation id.";
        let problem = Problem::new(Code::Unknown, detail).about(id).retryable(retryable);
        problem.with_status_at(self.shared.status_at(id))
    }

    /// `repeatable`: whether a retry may be the next attempt where this one is in doubt.
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
                "The service failed while it processed the request. Whether that took effect cannot be told.",
            )
            .retryable(self.doubt_ends(repeatable)),
            Failure::TimedOut => Problem::new(
                Code::UpstreamTimeout,
                "The service did not answer in time. Whether the request took effect cannot be told.",
            )
            .retryable(self.doubt_ends(repeatable)),
        };
        let status_at = if failure.nothing_was_sent() { None } else { self.shared.status_at(id) };
        problem.about(id).with_status_at(status_at)
    }

    /// Whether a doubt may be settled without anybody's hand: by a retry, where the record lets another attempt
    /// follow, or by a reconciler. The route's class says nothing about it; a record keeps the one that it was
    /// claimed under.
    fn doubt_ends(&self, repeatable: bool) -> bool {
        repeatable || self.shared.engine.has_reconciler(self.operation.as_str())
    }
}

/// Why a request has no fingerprint.
pub(crate) fn fingerprint(error: &semel::core::fingerprint::Error) -> Problem {
    match error.kind() {
        ErrorKind::TooLarge => Problem::new(Code::TooLarge, format!("Nothing was run. {error}")),
        _ => Problem::new(
            Code::Unfingerprintable,
            format!("The body cannot be compared with that of a retry, so nothing was run. {error}"),
        ),
    }
}

/// Why there is no outcome, where the engine had no answer.
pub(crate) fn error(error: &Error) -> Problem {
    match error {
        Error::Fingerprint(error) => fingerprint(error),
        Error::Quota(exceeded) => {
            let detail = "Too many requests with new idempotency keys. Nothing was run; retry later, with the same key.";
            Problem::new(Code::Quota, detail).retryable_after(exceeded.retry_after)
        }
        // No store and no waiting mends how the process was set up.
        Error::NoSealingKey | Error::Policy(_) | Error::LocalClass | Error::LocalRecord(_) => {
            tracing::error!(%error, "a request cannot be protected as this process is set up");
            let detail = "Requests like this one cannot be protected as the service is set up. Nothing was run; whoever runs the \
                          service has to mend it.";
            Problem::new(Code::StoreUnavailable, detail).with_status(500)
        }
        // Whatever it was: without a claim nothing runs, and nothing was.
        _ => {
            let detail = "Whether this request was processed before cannot be told just now. Nothing was run; retry \
                          later, with the same key.";
            Problem::new(Code::StoreUnavailable, detail).retryable_after(STORE_RETRY_AFTER)
        }
    }
}

/// Says which operation it is, and until when it is replayed.
fn marked(id: OperationId, replayed: &Replayed, mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(names::OPERATION_ID, names::operation_id(id));
    replay::mark(response.headers_mut(), Some(replayed.stored));
    response
}

/// The response that was stored, unless it cannot be given again.
pub(crate) fn replayed(id: OperationId, replayed: &Replayed) -> Option<Response<Body>> {
    let mut response = replay::response(&replayed.outcome)?;
    let how = if rebuild::is_found(&replayed.outcome) { "rebuilt" } else { "true" };
    response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static(how));
    Some(marked(id, replayed, response))
}

/// A response that was made of what was kept.
pub(crate) fn rebuilt(id: OperationId, replayed: &Replayed, mut response: Response<Body>) -> Response<Body> {
    names::strip(response.headers_mut());
    response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static("rebuilt"));
    marked(id, replayed, response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_up_that_seals_nothing_is_no_outage_that_a_retry_outlasts() {
        let local = Error::LocalRecord(OperationId::from_bytes([7; 16]));
        for set_up in [Error::NoSealingKey, Error::LocalClass, local] {
            let told = error(&set_up).into_response(Form::Json, "");
            assert_eq!((told.status().as_u16(), told.headers().get("retry-after")), (500, None));
            let document = String::from_utf8_lossy(&told.body().data().unwrap_or_default()).into_owned();
            assert!(document.contains("\"retryable\":false"), "{document}");
        }
        let told = error(&Error::Closing).into_response(Form::Json, "");
        assert_eq!((told.status().as_u16(), told.headers().contains_key("retry-after")), (503, true));
    }
}
