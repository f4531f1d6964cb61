//! From a request to what is to be done once.
//!
//! What lives here: whether a request is protected, its key, and the form in which it is handed on. What must never: a body
//! or a header changed on the way, except for the headers that only Semel may set.

use crate::body::{Body, Whole};
use crate::names;
use crate::problem::{Code, Problem};
use crate::route::Ready;
use crate::terms::KeyRule;
use http::header::{ACCEPT, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request};
use semel::Attempt;
use semel::core::key::{self, Key};
use semel::core::policy::Class;

/// What a request's key makes of it.
pub(crate) enum Keyed {
    /// It has none, and needs none.
    Unprotected,
    Protected(Key),
    Refused(Problem),
}

/// Reads the key of a request that comes under `ready`.
pub(crate) fn keyed(headers: &HeaderMap, ready: &Ready) -> Keyed {
    let terms = &ready.terms;
    let lines = headers.get_all(&terms.key_header).iter().map(HeaderValue::as_bytes);
    match Key::from_header(lines, &terms.key_rules) {
        Ok(parsed) => Keyed::Protected(parsed.key),
        Err(key::Error::Missing) if terms.key == KeyRule::Optional => Keyed::Unprotected,
        Err(error @ key::Error::Missing) => {
            let header = &terms.key_header;
            let detail = format!(
                "{error} Send a new random one for each intent, the same on its retries, as {header}."
            );
            Keyed::Refused(Problem::new(Code::Missing, detail))
        }
        Err(error) => Keyed::Refused(Problem::new(Code::Invalid, error.to_string())),
    }
}

/// Refuses what could only be answered by a stream that never ends.
pub(crate) fn refuse_streams(parts: &Parts) -> Result<(), Problem> {
    let what = if parts.method == Method::CONNECT {
        "CONNECT"
    } else if parts.headers.contains_key(UPGRADE) {
        "An upgrade"
    } else if accepts_only_events(&parts.headers) {
        "An event stream"
    } else {
        return Ok(());
    };
    let detail = format!(
        "{what} cannot be replayed, and nothing was run. Send it without an idempotency key, or ask for a plain response."
    );
    Err(Problem::new(Code::Streaming, detail))
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

/// The request as the attempt hands it on: as it came, and with what it needs to know of the attempt.
pub(crate) fn hand_on(
    mut parts: Parts,
    mut body: Whole,
    key: &Key,
    class: Class,
    attempt: &Attempt,
) -> Request<Body> {
    let headers = &mut parts.headers;
    // The provider that deduplicates sees one key, however the client wrote it.
    if class == Class::Downstream
        && headers.contains_key(names::KEY)
        && let Some(bare) = key.to_header().filter(|_| reads_as(headers, key))
    {
        headers.insert(names::KEY, names::text(&bare));
    }
    headers.insert(names::OPERATION_ID, names::operation_id(attempt.operation_id()));
    headers.insert(names::ATTEMPT, HeaderValue::from(attempt.number()));
    headers.insert(names::FENCE, HeaderValue::from(attempt.fence()));
    parts.extensions.insert(attempt.clone());
    body.clean();
    Request::from_parts(parts, Body::whole(body))
}

/// Whether `Idempotency-Key` is where the key came from.
fn reads_as(headers: &HeaderMap, key: &Key) -> bool {
    let lines = headers.get_all(names::KEY).iter().map(HeaderValue::as_bytes);
    let rules = key::Rules::new(1, key::Rules::MAX).map(|rules| rules.with_weak(key::Treatment::Allow));
    rules.is_ok_and(|rules| Key::from_header(lines, &rules).is_ok_and(|parsed| parsed.key == *key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accept_that_names_anything_else_is_no_stream() {
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
