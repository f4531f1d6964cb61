//! JSON responses, and the headers of every response: nothing may be cached, sniffed or shown to another origin.

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

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

/// Adds the headers that a response does not set itself.
pub(super) async fn guarded(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    for (name, value) in EVERY_ANSWER {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
