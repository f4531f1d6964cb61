//! A request body that was not read completely, for reasons other than idempotency.
//!
//! The reasons and the responses. They have no [`Code`](crate::Code), because they say nothing about the key.

use super::document::{Form, GRPC_MESSAGE, GRPC_STATUS};
use crate::body::Body;
use crate::names;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use std::fmt;

/// The client was too slow to send its request body.
///
/// A server with limits for slow clients ends a body with this as its error, or as a source of it: the layer then
/// answers 408.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client stopped sending the request's body")
    }
}

impl std::error::Error for TooSlow {}

impl TooSlow {
    /// Whether `error` or one of its sources is this.
    pub fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        std::iter::successors(Some(error), |error| error.source())
            .any(<dyn std::error::Error + 'static>::is::<Self>)
    }
}

/// Why a body was not read completely. Nothing was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UnreadReason {
    /// It did not arrive in time. 408.
    TooSlow,
}

impl UnreadReason {
    const fn status(self) -> StatusCode {
        match self {
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }

    /// `DEADLINE_EXCEEDED`.
    const fn grpc_status(self) -> u32 {
        match self {
            Self::TooSlow => 4,
        }
    }

    const fn detail(self) -> &'static str {
        match self {
            Self::TooSlow => "The request's body did not arrive in time. Nothing was run.",
        }
    }

    /// The response in the client's format.
    pub(crate) fn response(self, form: Form) -> Response<Body> {
        let mut response = match form {
            Form::Json => self.json(),
            Form::Grpc => self.grpc(),
        };
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    fn json(self) -> Response<Body> {
        let status = self.status();
        let members = serde_json::json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": self.detail(),
            "retryable": true,
        });
        let mut response = Response::new(Body::from(Bytes::from(members.to_string())));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        response
    }

    fn grpc(self) -> Response<Body> {
        let mut response = Response::new(Body::from(Bytes::new()));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(GRPC_STATUS, HeaderValue::from(self.grpc_status()));
        headers.insert(GRPC_MESSAGE, names::text(self.detail().to_owned()));
        response
    }
}
