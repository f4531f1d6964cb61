//! How long the client of a request waits.
//!
//! Reads the time that is left from a request's head, and writes what is left of it for the handler.

use crate::problem::Form;
use crate::route::Deadlines;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::time::Duration;
use tokio::time::Instant;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The digits of a value at most.
const DIGITS_MAX: usize = 9;
const GRPC_DIGITS_MAX: usize = 8;

/// When the client of a request no longer waits.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    at: Instant,
    /// Where it was read, and how it is written.
    header: HeaderName,
    min: Duration,
    is_forwarded: bool,
}

impl Deadline {
    /// The deadline that a head states. `arrived`: when the head was read.
    pub(crate) fn of(
        settings: &Deadlines,
        headers: &HeaderMap,
        form: Form,
        arrived: Instant,
    ) -> Option<Self> {
        let own = settings.header.as_ref()?;
        let (header, parse): (_, fn(&str) -> Option<Duration>) = match form {
            Form::Grpc => (&GRPC_TIMEOUT, grpc_timeout),
            Form::Json => (own, milliseconds),
        };
        let mut lines = headers.get_all(header).iter();
        let left = parse(lines.next()?.to_str().ok()?)?;
        if lines.next().is_some() {
            return None;
        }
        let at = arrived.checked_add(left)?;
        Some(Self { at, header: header.clone(), min: settings.min, is_forwarded: settings.are_forwarded })
    }

    /// What is left.
    pub(crate) fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Whether there is too little time left to begin.
    pub(crate) fn is_too_short(&self) -> bool {
        let left = self.left();
        left.is_zero() || left < self.min
    }

    /// Resolves when it is over.
    pub(crate) async fn over(&self) {
        tokio::time::sleep_until(self.at).await;
    }

    /// Writes what is left into the head for the handler.
    pub(crate) fn forward(&self, headers: &mut HeaderMap) {
        if !self.is_forwarded {
            headers.remove(&self.header);
            return;
        }
        // Never zero, which a service may take for "no limit".
        let left = u64::try_from(self.left().as_millis()).unwrap_or(u64::MAX).max(1);
        let value = if self.header == GRPC_TIMEOUT { grpc_text(left) } else { left.to_string() };
        headers.insert(
            self.header.clone(),
            HeaderValue::from_maybe_shared(value).unwrap_or_else(|_| left.into()),
        );
    }
}

/// 1 to 9 digits.
fn milliseconds(text: &str) -> Option<Duration> {
    digits(text, DIGITS_MAX).map(Duration::from_millis)
}

/// 1 to 8 digits and a unit, as gRPC writes it.
fn grpc_timeout(text: &str) -> Option<Duration> {
    let unit = text.chars().next_back()?;
    let number = digits(text.strip_suffix(unit)?, GRPC_DIGITS_MAX)?;
    match unit {
        'H' => Some(Duration::from_secs(number * 60 * 60)),
        'M' => Some(Duration::from_secs(number * 60)),
        'S' => Some(Duration::from_secs(number)),
        'm' => Some(Duration::from_millis(number)),
        'u' => Some(Duration::from_micros(number)),
        'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

fn digits(text: &str, max: usize) -> Option<u64> {
    let is_number = (1..=max).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Milliseconds if they have few enough digits, otherwise whole seconds, never more than is left.
fn grpc_text(millis: u64) -> String {
    const MAX: u64 = 10_u64.pow(8) - 1;
    if millis <= MAX { format!("{millis}m") } else { format!("{}S", (millis / 1000).min(MAX)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(form: Form, lines: &[(&'static str, &'static str)]) -> Option<Deadline> {
        let headers = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        Deadline::of(&Deadlines::default(), &headers, form, Instant::now())
    }

    #[test]
    fn only_a_single_plain_number_is_a_deadline() {
        let left = |value| deadline(Form::Json, &[("x-request-timeout-ms", value)]).map(|found| found.left());
        assert!(left("999999999").is_some_and(|left| left > Duration::from_secs(999_990)));
        assert_eq!(left("0"), Some(Duration::ZERO));
        for bad in ["", "1000000000", "-1", "+1", "1.5", "1s", " 1", "0x10", "١"] {
            assert_eq!(left(bad), None, "{bad:?}");
        }
        let line = ("x-request-timeout-ms", "5");
        assert!(deadline(Form::Json, &[line, line]).is_none(), "which one?");
        assert!(deadline(Form::Json, &[("grpc-timeout", "5S")]).is_none());
    }

    #[test]
    fn grpc_has_a_header_and_units_of_its_own() {
        let left = |value| deadline(Form::Grpc, &[("grpc-timeout", value)]).map(|found| found.left());
        assert!(left("2H").is_some_and(|left| left > Duration::from_secs(7_190)));
        assert!(left("99999999M").is_some_and(|left| left > Duration::from_secs(5_999_000_000)));
        assert_eq!((left("0n"), left("0u")), (Some(Duration::ZERO), Some(Duration::ZERO)));
        for bad in ["", "5", "S", "123456789S", "5s", "5 S", "5é", "-5S"] {
            assert_eq!(left(bad), None, "{bad:?}");
        }
        assert!(deadline(Form::Grpc, &[("x-request-timeout-ms", "5")]).is_none());
    }

    #[test]
    fn the_handler_learns_what_is_left_never_more_and_never_zero() {
        let forwarded = |form, name, value| {
            let mut headers = HeaderMap::new();
            deadline(form, &[(name, value)]).expect("valid").forward(&mut headers);
            headers[name].to_str().expect("ASCII").to_owned()
        };
        let left: u64 = forwarded(Form::Json, "x-request-timeout-ms", "5000").parse().expect("a number");
        assert!((1..=5000).contains(&left), "{left}");
        assert_eq!(forwarded(Form::Json, "x-request-timeout-ms", "0"), "1");
        assert_eq!(forwarded(Form::Grpc, "grpc-timeout", "1n"), "1m");
        let hours = forwarded(Form::Grpc, "grpc-timeout", "100H");
        assert!(
            hours.ends_with('S') && hours[..hours.len() - 1].parse::<u64>().is_ok_and(|left| left <= 360_000)
        );
        let mut headers = HeaderMap::from_iter([(GRPC_TIMEOUT, HeaderValue::from_static("5S"))]);
        let settings = Deadlines { are_forwarded: false, ..Deadlines::default() };
        let hidden = Deadline::of(&settings, &headers, Form::Grpc, Instant::now()).expect("valid");
        hidden.forward(&mut headers);
        assert!(headers.is_empty());
    }
}
