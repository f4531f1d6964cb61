//! A request on its way to the handler.
//!
//! Refuses what cannot be protected. Bodies and headers are unchanged, except for headers that only Semel may set.

use crate::body::{Body, Clean, CompleteBody};
use crate::handler::Handle;
use crate::names;
use crate::problem::{Code, Problem};
use crate::route::folded;
use http::header::{ACCEPT, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use semel::core::key::{self, Key};
use semel::core::policy::Class;

/// Refuses a request that only accepts an event stream.
pub(crate) fn refuse_streams(parts: &Parts) -> Result<(), Problem> {
    refuse_tunnels(parts)?;
    if accepts_only_events(&parts.headers) { Err(stream("An event stream")) } else { Ok(()) }
}

/// Refuses upgrades and tunnels, whose bodies never end.
pub(crate) fn refuse_tunnels(parts: &Parts) -> Result<(), Problem> {
    if folded(&parts.method) == Method::CONNECT {
        Err(stream("CONNECT"))
    } else if parts.headers.contains_key(UPGRADE) {
        Err(stream("An upgrade"))
    } else {
        Ok(())
    }
}

fn stream(what: &str) -> Problem {
    let detail = format!(
        "{what} cannot be replayed, and nothing was run. Send it without an idempotency key, or ask for a plain response."
    );
    Problem::new(Code::Streaming, detail)
}

fn accepts_only_events(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter();
    let ranges = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let mut types = ranges
        .map(|range| range.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii())
        .filter(|range| !range.is_empty())
        .peekable();
    types.peek().is_some() && types.all(|range| range.eq_ignore_ascii_case(b"text/event-stream"))
}

/// The request for the handler: unchanged, with the headers and extensions of the attempt.
pub(crate) fn for_handler(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accept_with_another_type_is_not_a_stream() {
        let only = |lines: &[&'static str]| {
            let headers = lines.iter().map(|line| (ACCEPT, HeaderValue::from_static(line))).collect();
            accepts_only_events(&headers)
        };
        assert!(only(&["text/event-stream"]));
        assert!(only(&["Text/Event-Stream; q=0.5, text/event-stream"]));
        assert!(!only(&["text/event-stream, application/json"]));
        assert!(!only(&["text/event-stream", "*/*"]));
        assert!(!only(&[]) && !only(&[""]));
    }
}
