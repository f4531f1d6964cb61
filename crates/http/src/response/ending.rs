//! From an inner service's response to the ending of the attempt.
//!
//! Reads a response and decides what is stored of it. A response reaches its client only after its outcome was passed
//! to the engine.

use super::answer::Responder;
use crate::body::{self, Body, BoxError, Clean, CompleteBody, ReadResponse, UnstoredReason};
use crate::handler::{Handle, OutcomeHint, outcome_hint};
use crate::memory::ResponseMemory;
use crate::names;
use crate::observe::EventKind;
use crate::problem::{Failure, GRPC_STATUS, is_grpc};
use crate::route::RouteSettings;
use crate::stored::{Retain, rebuild};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use semel::WorkResult;
use semel::core::classify::{Answer, Ending};
use semel::core::labels::Labels;
use semel::core::outcome::{Fields, Outcome, Status};
use semel::core::policy::Class;
use std::borrow::Cow;

/// What the call that ran the attempt returns to its client, besides what was stored.
pub(crate) enum AttemptResponse {
    Response(Box<Response<Body>>),
    Failed(Failure),
    /// Nothing was sent, because its client's deadline was over.
    Late,
}

/// Reads a response, as far as it has to be stored and there is memory.
pub(crate) async fn ending_of_response<R>(
    response: Response<R>,
    method: &Method,
    handle: &Handle,
    memory: ResponseMemory,
    responder: &Responder<'_>,
) -> WorkResult<AttemptResponse>
where
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (settings, class) = (&responder.route.settings, handle.attempt().class());
    let (mut parts, body) = response.into_parts();
    let read = if is_endless(&parts.headers) {
        ReadResponse::Over(Body::live(body).cleaned(Clean::All), UnstoredReason::TooLong)
    } else {
        body::read_response(body, settings.response_bytes_max, memory).await
    };
    let statement_of = |complete| {
        let statement = Statement::new(&parts, complete, handle.report().outcome_hint);
        if statement.is_odd() {
            responder.state.report(responder.route, EventKind::OddWord);
        }
        statement
    };
    let (ending, body, stored_memory) = match read {
        ReadResponse::Complete(mut complete, mut memory) => {
            let outcome = |status| stored_outcome(&parts, &complete, method, status, handle, settings);
            let ending = statement_of(Some(&complete)).ending(class, settings, outcome);
            let length = parts.headers.get(CONTENT_LENGTH);
            let is_wrong = length.is_some_and(|length| *length != HeaderValue::from(complete.data.len()));
            if is_wrong && !is_bodiless(method, parts.status) {
                // Not stored either: a server would end the message by it.
                parts.headers.remove(CONTENT_LENGTH);
            }
            complete.clean(Clean::All);
            let stored_memory = memory.split(complete.data.len());
            (ending, Body::held(complete, memory), Some(stored_memory))
        }
        ReadResponse::Over(body, why) => {
            if why == UnstoredReason::NoMemory {
                let (operation, id) = (responder.route.label.as_str(), handle.operation_id());
                tracing::warn!(operation, operation_id = %id, "no memory left for a response: it was passed on and not stored, so retries cannot get it");
            }
            let outcome = |status| outcome_without_body(&parts, status, handle, settings);
            (statement_of(None).ending(class, settings, outcome), body, None)
        }
        ReadResponse::Broken(error) => return ending_of_failure(Failure::of_body(&*error)),
    };
    names::strip(&mut parts.headers);
    let reason = reason_of(&ending, parts.status);
    let local = AttemptResponse::Response(Box::new(Response::from_parts(parts, body)));
    WorkResult::new(ending, local).because(reason).holding(stored_memory)
}

/// A response to HEAD has the length of its body and not the body.
pub(crate) fn omit_body(response: &mut Response<Body>) {
    let Some(data) = response.body().data().filter(|data| !data.is_empty()) else { return };
    response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| data.len().into());
    *response.body_mut() = Body::from(Bytes::new());
}

/// There is no complete response, and the effect is in doubt.
pub(crate) fn ending_of_failure(failure: Failure) -> WorkResult<AttemptResponse> {
    WorkResult::new(Ending::InDoubt, AttemptResponse::Failed(failure)).because(failure.why())
}

/// Nothing was sent before the client's deadline. Waiting duplicates may have more time, so they do not get this answer.
pub(crate) fn late() -> WorkResult<AttemptResponse> {
    WorkResult::new(Ending::NotApplied(None), AttemptResponse::Late)
        .because("the client's deadline was over, nothing was sent")
}

/// What an operator should know about a response that is not replayed.
fn reason_of(ending: &Ending, status: StatusCode) -> Cow<'static, str> {
    match ending {
        Ending::Succeeded(_) | Ending::FailedReplayable(_) | Ending::NotAppliedForGood(_) => {
            Cow::Borrowed("")
        }
        Ending::NotApplied(_) | Ending::InDoubt => format!("answered {}", status.as_u16()).into(),
    }
}

/// The outcome of a complete response.
fn stored_outcome(
    parts: &Parts,
    complete: &CompleteBody,
    method: &Method,
    status: Status,
    handle: &Handle,
    settings: &RouteSettings,
) -> Outcome {
    if let Retain::Minimal(_) = settings.retain {
        return rebuild::minimal(status, &parts.headers, handle.report().resource);
    }
    let bodiless = is_bodiless(method, parts.status);
    let trailers = |trailers| settings.stored_headers.of(trailers, 0, true).into_iter().collect();
    Outcome {
        status,
        headers: settings
            .stored_headers
            .of(&parts.headers, complete.data.len(), bodiless)
            .into_iter()
            .collect(),
        body: semel::core::outcome::Body::Kept(detached(&complete.data)),
        trailers: complete.trailers.as_ref().map_or_else(Fields::default, trailers),
        labels: Labels::default(),
    }
}

/// Whether the length is of a body that is not sent.
fn is_bodiless(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD || status == StatusCode::NOT_MODIFIED
}

/// A copy of the bytes. Data from a connection is a slice of its buffer, and would keep the whole buffer for as long
/// as the outcome is cached: eight kilobytes for a body of a hundred bytes.
fn detached(data: &Bytes) -> Bytes {
    // A longer body fills most of its buffer.
    if data.len() <= READ_BYTES { Bytes::copy_from_slice(data) } else { data.clone() }
}

/// The size of a read buffer.
const READ_BYTES: usize = 64 * 1024;

/// The outcome of a response that is too long or endless.
fn outcome_without_body(parts: &Parts, status: Status, handle: &Handle, settings: &RouteSettings) -> Outcome {
    match settings.retain {
        Retain::Whole => Outcome::not_retained(status),
        Retain::Minimal(_) => rebuild::minimal(status, &parts.headers, handle.report().resource),
    }
}

/// What a response says about its effect.
pub(crate) struct Statement {
    /// None if the response does not say how it ended, such as an incomplete gRPC response.
    status: Option<Status>,
    retry_after: bool,
    outcome_hint: Option<OutcomeHint>,
    /// An endless stream: only its beginning counts.
    is_endless: bool,
}

impl Statement {
    /// What a response with this head says, and with this body if it is complete. `reported`: the handler's report.
    pub(crate) fn new(parts: &Parts, complete: Option<&CompleteBody>, reported: Option<OutcomeHint>) -> Self {
        let trailers = complete.and_then(|complete| complete.trailers.as_ref());
        let is_empty = complete.is_some_and(|complete| complete.data.is_empty());
        Self::of_end(parts, complete.is_some().then_some((is_empty, trailers)), reported)
    }

    /// The same if only the end of the body is known: whether it was empty, and its trailers.
    pub(crate) fn of_end(
        parts: &Parts,
        end: Option<(bool, Option<&HeaderMap>)>,
        reported: Option<OutcomeHint>,
    ) -> Self {
        let outcome_hint = outcome_hint::of(reported, parts, end.and_then(|(_, trailers)| trailers));
        // Without a status, the service's own report is enough.
        let status = status(parts, end).or_else(|| outcome_hint.map(|_| Status::Grpc(GRPC_UNKNOWN)));
        let retry_after = invites_retry(&parts.headers);
        Self { status, retry_after, outcome_hint, is_endless: is_endless(&parts.headers) }
    }

    /// Whether a success was reported as "not applied".
    fn is_odd(&self) -> bool {
        let is_success = matches!(self.status, Some(Status::Http(200..=299) | Status::Grpc(0)));
        is_success && self.outcome_hint == Some(OutcomeHint::NotApplied)
    }

    /// The ending of an attempt of this class, with the outcome.
    pub(crate) fn ending(
        &self,
        class: Class,
        settings: &RouteSettings,
        outcome: impl FnOnce(Status) -> Outcome,
    ) -> Ending {
        let Some(status) = self.status else { return Ending::InDoubt };
        let is_success = matches!(status, Status::Http(200..=299));
        if self.is_endless && !is_success && self.outcome_hint.is_none() {
            return Ending::InDoubt;
        }
        let answer = Answer { status, retry_after: self.retry_after, outcome_hint: self.outcome_hint };
        Ending::of(class, &answer, &settings.rules, outcome(status))
    }
}

/// The status of a response; for gRPC, `grpc-status` if there is one. That of the head counts only if neither a
/// message nor trailers follow.
fn status(parts: &Parts, end: Option<(bool, Option<&HeaderMap>)>) -> Option<Status> {
    // Another status than 200 comes from an intermediary.
    if !is_grpc(&parts.headers) || parts.status != StatusCode::OK {
        return Some(Status::Http(parts.status.as_u16()));
    }
    let status = match end? {
        (true, None) => parts.headers.get(GRPC_STATUS),
        (_, trailers) => trailers?.get(GRPC_STATUS),
    };
    status?.to_str().ok()?.parse().ok().map(Status::Grpc)
}

const GRPC_UNKNOWN: u32 = 2;

/// Whether a response has a valid `Retry-After`: whole seconds or an HTTP date. Anything else is ignored.
fn invites_retry(headers: &HeaderMap) -> bool {
    let names_time = |value: &HeaderValue| {
        let is_seconds = !value.is_empty() && value.as_bytes().iter().all(u8::is_ascii_digit);
        is_seconds || value.to_str().is_ok_and(|date| httpdate::parse_http_date(date).is_ok())
    };
    headers.contains_key(RETRY_AFTER) && headers.get_all(RETRY_AFTER).iter().all(names_time)
}

/// Whether a response with these headers is an endless stream: an event stream, or parts that replace each other. For
/// such a response, only the head is awaited, and its body is streamed.
pub fn is_endless(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let kind = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        [&b"text/event-stream"[..], b"multipart/x-mixed-replace"]
            .iter()
            .any(|endless| kind.eq_ignore_ascii_case(endless))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_seconds_and_dates_invite_a_retry() {
        let invites = |lines: &[&'static str]| {
            let lines = lines.iter().map(|line| (RETRY_AFTER, HeaderValue::from_static(line)));
            invites_retry(&lines.collect())
        };
        for good in ["0", "1", "120", "86400000000000000000000"] {
            assert!(invites(&[good]), "{good}");
        }
        let dates = [
            "Wed, 21 Oct 2026 07:28:00 GMT",
            "Wednesday, 21-Oct-26 07:28:00 GMT",
            "Wed Oct 21 07:28:00 2026",
        ];
        for good in dates {
            assert!(invites(&[good]) && invites(&["1", good]), "{good}");
        }
        for bad in
            ["", "soon", "1.5", "-1", "+1", "5s", "1, 2", "0x10", "2026-10-21T07:28:00Z", "Wed, 21 Oct"]
        {
            assert!(!invites(&[bad]) && !invites(&["1", bad]), "{bad}");
        }
        assert!(!invites(&[]));
    }

    #[test]
    fn a_stored_body_does_not_keep_its_read_buffer() {
        let buffer = Bytes::from(vec![b'x'; 8192]);
        let stored = detached(&buffer.slice(100..200));
        assert_eq!(stored, buffer[100..200]);
        assert!(buffer.is_unique());
    }
}
