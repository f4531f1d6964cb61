//! The request as its handler gets it: unchanged, except for headers that only Semel may set.

use super::handle::Handle;
use crate::body::{Body, Clean, CompleteBody};
use crate::names;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request};
use semel::core::key::{self, Key};
use semel::core::policy::Class;

/// The request for the handler: unchanged, with the headers and extensions of the attempt.
pub(crate) fn request_for_handler(
    mut parts: Parts,
    mut body: CompleteBody,
    key: &Key,
    class: Class,
    handle: &Handle,
) -> Request<Body> {
    let attempt = handle.attempt();
    let headers = &mut parts.headers;
    // A provider that deduplicates must see the same key, however the client wrote it.
    if class == Class::Downstream
        && headers.contains_key(names::KEY)
        && let Some(bare) = key.to_header().filter(|_| reads_as(headers, key))
    {
        headers.insert(names::KEY, names::text(bare));
    }
    headers.insert(names::OPERATION_ID, names::operation_id(attempt.operation_id()));
    headers.insert(names::ATTEMPT, HeaderValue::from(attempt.number()));
    headers.insert(names::FENCE, HeaderValue::from(attempt.fence()));
    parts.extensions.insert(attempt.clone());
    parts.extensions.insert(handle.clone());
    body.clean(Clean::All);
    Request::from_parts(parts, Body::complete(body))
}

/// Whether the key came from `Idempotency-Key`.
fn reads_as(headers: &HeaderMap, key: &Key) -> bool {
    let lines = headers.get_all(names::KEY).iter().map(HeaderValue::as_bytes);
    let rules = key::Rules::new(1, key::Rules::MAX).map(|rules| rules.with_weak(key::Treatment::Allow));
    rules.is_ok_and(|rules| Key::from_header(lines, &rules).is_ok_and(|parsed| parsed.key == *key))
}
