//! From a stored outcome to its response.
//!
//! A response that cannot be restored exactly is not replayed.

use super::rebuild;
use crate::body::{Body, CompleteBody};
use crate::names;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use semel::Stored;
use semel::core::outcome::{self, Fields, Outcome, Status};
use semel::core::time::Time;
use std::time::{Duration, SystemTime};

/// The stored response, unless it cannot be restored exactly.
pub(crate) fn response(outcome: &Outcome) -> Option<Response<Body>> {
    let outcome::Body::Kept(data) = &outcome.body else { return None };
    let status = match outcome.status {
        Status::Http(status) => StatusCode::from_u16(status).ok()?,
        Status::Grpc(_) => StatusCode::OK,
        Status::Value => return None,
    };
    let trailers = if outcome.trailers.is_empty() { None } else { Some(fields(&outcome.trailers)?) };
    let mut response =
        Response::new(Body::complete(CompleteBody { data: data.clone(), trailers, memory: None }));
    *response.status_mut() = status;
    *response.headers_mut() = fields(&outcome.headers)?;
    Some(response)
}

fn fields(fields: &Fields) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in fields.iter().filter(|(name, _)| rebuild::is_header(name)) {
        headers.try_append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?).ok()?;
    }
    Some(headers)
}

/// Adds the expiry of a response, or that it is not stored.
pub(crate) fn mark(headers: &mut HeaderMap, stored: Option<Stored>) {
    match stored {
        None => drop(headers.insert(names::STORED, HeaderValue::from_static("false"))),
        Some(Stored { expires_at: Some(at), .. }) => drop(headers.insert(names::EXPIRES, date(at))),
        Some(Stored { expires_at: None, .. }) => {}
    }
}

/// The last second with a year of four digits.
const LAST: u64 = 253_402_300_799;

/// A moment as an HTTP date. Moments after the year 9999 are written as its last second.
fn date(at: Time) -> HeaderValue {
    let seconds = Duration::from_secs((at.as_millis() / 1000).min(LAST));
    names::text(httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_http_dates_rounded_down() {
        assert_eq!(date(Time::from_millis(784_111_777_999)), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(date(Time::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn an_inexact_replay_is_refused() {
        assert!(response(&Outcome::http(201, [("location", "/7")], "x")).is_some());
        assert!(response(&Outcome::not_retained(Status::Http(200))).is_none());
        assert!(response(&Outcome::value("1")).is_none());
        assert!(response(&Outcome::http(200, [("bad name", "x")], "")).is_none());
        assert!(response(&Outcome::http(200, [("x", "a\nb")], "")).is_none());
        assert!(response(&Outcome::http(99, [("x", "y")], "")).is_none());
        let many = (0..40_000).map(|number| (format!("x-{number}"), "y"));
        assert!(response(&Outcome::http(200, many, "")).is_none(), "more than a map of headers holds");
    }
}
