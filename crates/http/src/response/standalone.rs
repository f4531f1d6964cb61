//! Responses of services that run commands by themselves: the same as the layer's.
//!
//! In JSON, with the published paths at the root. For handlers without the layer, and for errors of a handler's own
//! transaction.

use super::answer;
use crate::body::Body;
use crate::names;
use crate::problem::{Form, Problem};
use crate::stored::replay;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode};
use semel::core::outcome::{Outcome, Status};
use semel::{RecordedOutcome, Refusal, RefusalReason};

/// The response with a command's outcome, as the layer would send it: the recorded status, headers and body, with
/// `Operation-Id`, `Idempotency-Expires` and, if it is a replay, `Idempotency-Replayed`. If the body of a replay was
/// not retained, the problem [`Code::NotRetained`](crate::Code::NotRetained).
pub fn response_of(recorded: &RecordedOutcome) -> Response<Body> {
    let RecordedOutcome { operation_id, outcome, replayed, stored, .. } = recorded;
    let mut response = match replay::response(outcome) {
        Some(response) => response,
        None if *replayed => problem_response(Problem::not_retained(*operation_id)),
        None => bodiless(outcome),
    };
    if *replayed {
        response.headers_mut().insert(names::REPLAYED, HeaderValue::from_static("true"));
    }
    answer::marked(*operation_id, *stored, response)
}

/// The response to a call without a success, as the layer would send it: the recorded outcome of a command that
/// failed, or a [`Problem`].
pub fn response_of_refusal(refusal: &Refusal) -> Response<Body> {
    match &refusal.reason {
        RefusalReason::Failed(recorded) => response_of(recorded),
        reason => problem_response(Problem::of_refusal(refusal.operation_id, reason)),
    }
}

/// A problem in JSON, for a service whose specification is published at the root.
fn problem_response(problem: Problem) -> Response<Body> {
    problem.into_response(Form::Json, "")
}

/// The first response of an outcome whose body was too large to be recorded.
fn bodiless(outcome: &Outcome) -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::new()));
    if let Status::Http(status) = outcome.status {
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::Stored;
    use semel::core::id::OperationId;
    use semel::core::record::StateName;
    use semel::core::time::Time;
    use std::time::Duration;

    const ID: OperationId = OperationId::from_bytes([7; 16]);

    fn recorded(outcome: Outcome, succeeded: bool, replayed: bool) -> RecordedOutcome {
        let state = if succeeded { StateName::Succeeded } else { StateName::FailedReplayable };
        let stored = Some(Stored { state, expires_at: Some(Time::from_millis(784_111_777_000)) });
        RecordedOutcome { operation_id: ID, outcome, succeeded, replayed, stored }
    }

    fn header<'r>(response: &'r Response<Body>, name: &str) -> Option<&'r str> {
        response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    #[test]
    fn an_outcome_is_answered_as_it_was_recorded() {
        for replayed in [false, true] {
            let outcome = Outcome::http(201, [("location", "/orders/7")], "created");
            let response = response_of(&recorded(outcome, true, replayed));
            assert_eq!((response.status().as_u16(), header(&response, "location")), (201, Some("/orders/7")));
            assert_eq!(response.body().data().as_deref(), Some(&b"created"[..]));
            assert_eq!(header(&response, "operation-id"), Some(ID.to_string().as_str()));
            assert_eq!(header(&response, "idempotency-expires"), Some("Sun, 06 Nov 1994 08:49:37 GMT"));
            assert_eq!(header(&response, "idempotency-replayed"), replayed.then_some("true"));
        }
    }

    #[test]
    fn an_outcome_without_its_body_is_replayed_as_a_problem() {
        let outcome = || Outcome::not_retained(Status::Http(201));
        assert_eq!(response_of(&recorded(outcome(), true, false)).status().as_u16(), 201);
        let replay = response_of(&recorded(outcome(), true, true));
        let document = replay.body().data().unwrap_or_default();
        assert_eq!(replay.status().as_u16(), 409);
        assert!(String::from_utf8_lossy(&document).contains("IDEMPOTENCY_RESPONSE_NOT_RETAINED"));
    }

    #[test]
    fn a_failed_command_is_answered_with_its_outcome_and_others_with_a_problem() {
        let failed = recorded(Outcome::http(422, [("x-why", "stock")], "sold out"), false, true);
        let response = response_of_refusal(&failed.into_success().expect_err("it failed"));
        assert_eq!((response.status().as_u16(), header(&response, "x-why")), (422, Some("stock")));
        let after = Duration::from_secs(2);
        let problems = [
            (RefusalReason::Mismatch, 422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", None),
            (
                RefusalReason::InProgress { retry_after: after },
                409,
                "IDEMPOTENCY_REQUEST_IN_PROGRESS",
                Some("2"),
            ),
            (RefusalReason::Expired, 410, "IDEMPOTENCY_RECORD_EXPIRED", None),
            (RefusalReason::Unknown { repeatable: true }, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", None),
            (RefusalReason::Unreadable, 409, "IDEMPOTENCY_OUTCOME_UNKNOWN", None),
            (RefusalReason::AttemptsExhausted, 409, "IDEMPOTENCY_ATTEMPTS_EXHAUSTED", None),
            (
                RefusalReason::ClockNotTrusted { retry_after: after },
                503,
                "IDEMPOTENCY_CLOCK_NOT_TRUSTED",
                Some("2"),
            ),
            (RefusalReason::NotApplied, 502, "UPSTREAM_UNREACHABLE", None),
        ];
        for (reason, status, code, retry_after) in problems {
            let refusal = Refusal { operation_id: ID, reason };
            let response = response_of_refusal(&refusal);
            let document = String::from_utf8_lossy(&response.body().data().unwrap_or_default()).into_owned();
            assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (status, retry_after));
            let retryable = format!("\"retryable\":{}", refusal.is_retryable());
            assert!(document.contains(code) && document.contains(&retryable), "{document}");
            assert_eq!(header(&response, "content-type"), Some("application/problem+json"));
            assert_eq!(header(&response, "operation-id"), Some(ID.to_string().as_str()));
        }
    }
}
