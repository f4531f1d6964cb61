//! The problem documents for requests without an outcome.
//!
//! Every such situation, as RFC 9457 and as gRPC. Problems never contain the key, or parts of a stored request or
//! response.

use super::code::Code;
use crate::body::Body;
use crate::names;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LINK, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use semel::core::id::OperationId;
use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

/// The path of the published specification, below a prefix; the `type` of every problem points there.
pub const SPECIFICATION: &str = "/.well-known/idempotency";

/// The format of a problem for a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `application/problem+json`.
    Json,
    /// Trailers only, as a gRPC status.
    Grpc,
}

impl Form {
    /// The format for a request with these headers.
    pub fn of(headers: &HeaderMap) -> Self {
        if is_grpc(headers) { Self::Grpc } else { Self::Json }
    }
}

const GRPC: &[u8] = b"application/grpc";

/// Whether a message is gRPC (not gRPC-Web, which counts as plain HTTP).
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(CONTENT_TYPE) else { return false };
    let (kind, rest) = value.as_bytes().split_at(value.len().min(GRPC.len()));
    kind.eq_ignore_ascii_case(GRPC) && matches!(rest.first(), None | Some(b'+' | b';' | b' '))
}

/// A problem document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    status: u16,
    detail: Cow<'static, str>,
    retryable: bool,
    retry_after: Option<Duration>,
    operation_id: Option<OperationId>,
    status_at: Option<String>,
}

impl Problem {
    /// A problem that a retry does not fix.
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let (detail, status) = (detail.into(), code.status());
        Self {
            code,
            status,
            detail,
            retryable: false,
            retry_after: None,
            operation_id: None,
            status_at: None,
        }
    }

    /// The same under another HTTP status, one of its code's [`statuses`](Code::statuses).
    #[must_use]
    pub fn with_status(self, status: u16) -> Self {
        debug_assert!(self.code.statuses().contains(&status), "{:?} is never sent with {status}", self.code);
        Self { status, ..self }
    }

    /// Whether a retry with the same key may help.
    #[must_use]
    pub fn retryable(self, retryable: bool) -> Self {
        Self { retryable, ..self }
    }

    /// A retry may help after this duration, which is sent in whole seconds, rounded up.
    #[must_use]
    pub fn retryable_after(self, span: Duration) -> Self {
        Self { retryable: true, retry_after: Some(span), ..self }
    }

    /// Adds the operation ID.
    #[must_use]
    pub fn about(self, operation_id: OperationId) -> Self {
        Self { operation_id: Some(operation_id), ..self }
    }

    /// Adds a link to the operation's state.
    #[must_use]
    pub fn with_status_at(self, path: Option<String>) -> Self {
        Self { status_at: path, ..self }
    }

    /// The code.
    pub fn code(&self) -> Code {
        self.code
    }

    /// The response in the client's format. `prefix` is where the specification is published.
    pub fn into_response(self, form: Form, prefix: &str) -> Response<Body> {
        let mut response = match form {
            Form::Json => self.json(prefix),
            Form::Grpc => self.grpc(),
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(id) = self.operation_id {
            headers.insert(names::OPERATION_ID, names::operation_id(id));
        }
        if let Some(span) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(span)));
        }
        if let Some(path) = &self.status_at {
            headers.insert(LINK, names::text(format!("<{path}>; rel=\"status\"")));
        }
        response
    }

    fn json(&self, prefix: &str) -> Response<Body> {
        let mut members = serde_json::json!({
            "type": format!("{prefix}{SPECIFICATION}#{}", self.code.as_str()),
            "title": self.code.title(),
            "status": self.status,
            "code": self.code.as_str(),
            "detail": self.detail,
            "retryable": self.retryable,
        });
        if let Some(id) = self.operation_id {
            members["operationId"] = id.to_string().into();
        }
        let mut response = Response::new(Body::from(Bytes::from(members.to_string())));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }

    fn grpc(&self) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(self.code.grpc_status()));
        headers.insert(GRPC_MESSAGE, names::text(percent_encoded(&self.detail)));
        headers.insert(CODE, HeaderValue::from_static(self.code.as_str()));
        headers.insert(RETRYABLE, HeaderValue::from_static(if self.retryable { "true" } else { "false" }));
        response
    }
}

pub(crate) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
pub(crate) const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const CODE: HeaderName = HeaderName::from_static("code");
const RETRYABLE: HeaderName = HeaderName::from_static("retryable");

/// At least one: zero would make clients retry in a busy loop.
fn whole_seconds(span: Duration) -> u64 {
    (span.as_secs() + u64::from(span.subsec_nanos() > 0)).max(1)
}

/// The encoding of gRPC messages: everything except printable ASCII, and the percent sign, is percent-encoded.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_statuses_of_the_specification() {
        let actual: Vec<_> = Code::ALL.iter().map(|code| (code.as_str(), code.status())).collect();
        let expected = [
            ("MISSING_IDEMPOTENCY_KEY", 400),
            ("INVALID_IDEMPOTENCY_KEY", 400),
            ("CALLER_NOT_IDENTIFIED", 400),
            ("UNFINGERPRINTABLE_REQUEST", 400),
            ("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST", 422),
            ("IDEMPOTENCY_REQUEST_IN_PROGRESS", 409),
            ("IDEMPOTENCY_OUTCOME_UNKNOWN", 409),
            ("IDEMPOTENCY_RECORD_EXPIRED", 410),
            ("IDEMPOTENCY_RESPONSE_NOT_RETAINED", 409),
            ("IDEMPOTENCY_KEY_QUOTA_EXCEEDED", 429),
            ("IDEMPOTENCY_REQUEST_TOO_LARGE", 413),
            ("IDEMPOTENCY_ATTEMPTS_EXHAUSTED", 409),
            ("UPSTREAM_UNREACHABLE", 502),
            ("UPSTREAM_FAILED", 502),
            ("UPSTREAM_TIMEOUT", 504),
            ("DEADLINE_EXCEEDED", 504),
            ("STREAMING_NOT_PROTECTED", 501),
            ("OPERATION_NOT_FOUND", 404),
            ("MALFORMED_REQUEST", 400),
            ("IDEMPOTENCY_CLOCK_NOT_TRUSTED", 503),
            ("GATEWAY_BUSY", 503),
            ("IDEMPOTENCY_STORE_UNAVAILABLE", 503),
            ("LOCAL_COMMAND_NOT_RECORDED", 500),
        ];
        assert_eq!(actual, expected);
    }

    #[test]
    fn retry_after_is_whole_seconds_and_never_zero() {
        let seconds = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([0, 1, 1_000, 1_001, 61_000].map(seconds), [1, 1, 1, 2, 61]);
    }

    #[test]
    fn grpc_refusals_are_a_status_without_a_body() {
        let problem = Problem::new(Code::InProgress, "50 % – later").retryable_after(Duration::from_secs(2));
        let response = problem.into_response(Form::Grpc, "");
        let header = |name: &str| response.headers()[name].to_str().expect("ASCII").to_owned();
        assert_eq!((response.status(), header("grpc-status").as_str()), (StatusCode::OK, "10"));
        assert_eq!(header("code"), "IDEMPOTENCY_REQUEST_IN_PROGRESS");
        assert_eq!(header("grpc-message"), "50 %25 %E2%80%93 later");
        assert!(http_body::Body::is_end_stream(response.body()));
        let grpc = |code: Code| code.grpc_status();
        let codes = [Code::InProgress, Code::Mismatch, Code::Unknown, Code::Invalid, Code::StoreUnavailable];
        assert_eq!(codes.map(grpc), [10, 9, 2, 3, 14]);
    }

    #[test]
    fn only_grpc_itself_is_answered_as_grpc() {
        let form = |value: &'static str| {
            Form::of(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(value))]))
        };
        for grpc in ["application/grpc", "application/grpc+proto", "Application/GRPC; x=1"] {
            assert_eq!(form(grpc), Form::Grpc, "{grpc}");
        }
        for other in ["application/grpc-web", "application/grpc-web-text", "application/json", "text/plain"] {
            assert_eq!(form(other), Form::Json, "{other}");
        }
        assert_eq!(Form::of(&HeaderMap::new()), Form::Json);
    }
}
