//! JSON responses, and the headers of every response: nothing may be cached, sniffed or shown to another origin.

use super::Shared;
use super::memory::{self, PIECE};
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde::Serialize;
use std::sync::Arc;

const EVERY_ANSWER: [(HeaderName, &str); 6] = [
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    (REFERRER_POLICY, "no-referrer"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A document as a response.
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response {
    // Our own documents have only string keys, so this cannot fail.
    let text = serde_json::to_vec(document).unwrap_or_default();
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Takes memory for a long response until it is sent: it contains a stored body, and its client may read slowly or never.
pub(super) async fn bounded(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let length = response.body().size_hint().exact().and_then(|length| usize::try_from(length).ok());
    let Some(length) = length.filter(|length| *length > PIECE) else { return response };
    let Some(pieces) = shared.responses.at_once(length) else {
        let why = "Long responses to other requests take all the memory for them.";
        return memory::unsent(why).into_response();
    };
    let (parts, body) = response.into_parts();
    // All of it is in memory already.
    match body.collect().await {
        Ok(collected) => Response::from_parts(parts, Body::from(pieces.around(collected.to_bytes()))),
        Err(_) => Response::from_parts(parts, Body::empty()),
    }
}

/// Adds the headers that a response does not set itself.
pub(super) async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in EVERY_ANSWER {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
