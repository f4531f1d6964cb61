//! Times as people read and write them: "18m ago", and `--since 2h`. The current time is an argument.

use semel::archive::rfc3339;
use semel::core::time::Time;
use semel_text::duration;
use std::time::Duration;
use thiserror::Error;

/// A duration in a number and a unit, rounded down: `42s`, `18m`, `3h`, `5d`.
pub fn age(span: Duration) -> String {
    match span.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// How far away a time from the API is: `18m ago`, `in 3h`. The text itself if it is not a time.
pub fn away(text: &str, now: Time) -> String {
    match rfc3339::parse(text) {
        Some(at) if at > now => format!("in {}", age(at.since(now))),
        Some(at) => format!("{} ago", age(now.since(at))),
        None => text.to_owned(),
    }
}

/// A time from the API, for people: `2026-11-16 01:30:12 UTC`.
pub fn written(text: &str) -> String {
    match (rfc3339::parse(text), text.split_at_checked(19)) {
        (Some(_), Some((seconds, _))) if text.ends_with('Z') => format!("{} UTC", seconds.replace('T', " ")),
        _ => text.to_owned(),
    }
}

/// A time for people.
pub fn of(at: Time) -> String {
    written(&rfc3339::text(at))
}

/// How far away a time is: `in 12s`, `3h ago`.
pub fn from_now(at: Time, now: Time) -> String {
    away(&rfc3339::text(at), now)
}

/// This text is neither a time nor a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a time: write one like 2026-11-15T19:05:00Z, or how long ago, such as 2h")]
pub struct MomentError(pub String);

/// The value of `--since` and `--until`: a time, or a duration before now.
pub fn parse(text: &str, now: Time) -> Result<Time, MomentError> {
    if let Some(moment) = rfc3339::parse(text) {
        return Ok(moment);
    }
    duration::parse(text).map(|span| now - span).map_err(|_| MomentError(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let text = [0, 59, 60, 3_599, 3_600, 172_799, 172_800].map(|secs| age(Duration::from_secs(secs)));
        assert_eq!(text, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
        let now = Time::from_millis(1_763_254_800_000);
        assert_eq!(away(&rfc3339::text(now - Duration::from_secs(90)), now), "1m ago");
        assert_eq!(away(&rfc3339::text(now + Duration::from_secs(90)), now), "in 1m");
        assert_eq!(written("2026-11-16T01:30:12.345Z"), "2026-11-16 01:30:12 UTC");
    }

    #[test]
    fn a_moment_is_one_or_so_long_ago() {
        let now = Time::from_millis(7_200_000);
        assert_eq!(parse("1h", now), Ok(Time::from_millis(3_600_000)));
        assert_eq!(parse("1970-01-01T00:00:01Z", now), Ok(Time::from_millis(1_000)));
        assert!(parse("yesterday", now).is_err());
    }
}
