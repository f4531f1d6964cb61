//! Responses to requests that never reach the upstream, and to unprotected requests that fail there. They do not
//! mention idempotency if no key was sent.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use semel_http::{Body, BoxError, Code, Failure, Problem};

/// An extension of a response that refuses a request without a code.
#[derive(Debug, Clone, Copy)]
pub struct RefusalWithoutCode;

/// The response to an unprotected request without a response, by what `error` or its cause says.
pub(super) fn unanswered(error: &BoxError) -> Problem {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    let mut failure = Failure::Broken;
    while let Some(error) = next {
        if let Some(known) = error.downcast_ref() {
            failure = *known;
            break;
        }
        next = error.source();
    }
    match failure {
        Failure::Unreachable => {
            Problem::new(Code::Unreachable, "The service could not be reached. Nothing was sent.")
                .retryable(true)
        }
        Failure::ConnectTimeout => {
            let detail = "The service could not be reached in time. Nothing was sent.";
            Problem::new(Code::Unreachable, detail).with_status(504).retryable(true)
        }
        Failure::Broken => Problem::new(
            Code::UpstreamFailed,
            "The service failed while it processed the request. The request may have taken effect.",
        ),
        Failure::TimedOut => Problem::new(
            Code::UpstreamTimeout,
            "The service did not answer in time. The request may have taken effect.",
        ),
    }
}

/// A request that is not valid HTTP.
pub(super) fn malformed(detail: &'static str) -> Problem {
    Problem::new(Code::Malformed, detail)
}

/// A request for a tunnel, which the gateway does not open.
pub(super) fn tunnel() -> Problem {
    let detail = "CONNECT asks for a tunnel, which this gateway does not open. Nothing was sent.";
    Problem::new(Code::Streaming, detail)
}

/// A target that is too long to be forwarded.
pub(super) fn too_long() -> Response<Body> {
    let detail = "Path and query are too long to be forwarded. Nothing was sent.";
    plain(StatusCode::URI_TOO_LONG, "The target is too long", detail)
}

fn plain(status: StatusCode, title: &str, detail: &str) -> Response<Body> {
    let members = serde_json::json!({
        "type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail,
        "retryable": false,
    });
    let mut response = Response::new(Body::from(Bytes::from(members.to_string())));
    *response.status_mut() = status;
    response.extensions_mut().insert(RefusalWithoutCode);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
