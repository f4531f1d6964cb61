//! Refuses requests for streams, upgrades and tunnels: what never ends cannot be replayed.

use crate::problem::{Code, Problem};
use crate::route::folded;
use http::header::{ACCEPT, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method};

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

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

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
