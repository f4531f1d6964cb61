//! How long the client of a request waits.
//!
//! Reads the time that is left from a request's head, and writes what is left of it for the handler.

use crate::problem::Form;
use crate::route::Deadlines;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::Engine;
use std::time::Duration;

const GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
/// The digits of a value at most.
const DIGITS_MAX: usize = 9;
const GRPC_DIGITS_MAX: usize = 8;

/// When the client of a request no longer waits.
#[derive(Debug, Clone)]
pub(crate) struct Deadline {
    /// By the engine's uptime.
    at: Duration,
    /// Where it was read, and how it is written.
    header: HeaderName,
    min: Duration,
}

impl Deadline {
    /// The deadline that a head states. `arrived`: the uptime at which the head was read.
    pub(crate) fn of(
        settings: &Deadlines,
        headers: &HeaderMap,
        form: Form,
        arrived: Duration,
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
        Some(Self { at, header: header.clone(), min: settings.min })
    }

    /// What is left at this uptime.
    pub(crate) fn left(&self, uptime: Duration) -> Duration {
        self.at.saturating_sub(uptime)
    }

    pub(crate) fn is_over(&self, uptime: Duration) -> bool {
        self.left(uptime).is_zero()
    }

    /// Whether there is too little time left to begin.
    pub(crate) fn is_too_short(&self, uptime: Duration) -> bool {
        let left = self.left(uptime);
        left.is_zero() || left < self.min
    }

    /// Resolves when it is over.
    pub(crate) async fn over(&self, engine: &Engine) {
        loop {
            let left = self.left(engine.uptime());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }

    /// Writes what is left into the head for the handler.
    fn forward(&self, headers: &mut HeaderMap, uptime: Duration) {
        // Never zero, which a service may take for "no limit".
        let left = u64::try_from(self.left(uptime).as_millis()).unwrap_or(u64::MAX).max(1);
        let value = if self.header == GRPC_TIMEOUT { grpc_text(left) } else { left.to_string() };
        headers.insert(
            self.header.clone(),
            HeaderValue::from_maybe_shared(value).unwrap_or_else(|_| left.into()),
        );
    }
}

/// Tells the handler what is left of `deadline`, unless the settings hide all deadlines from it.
pub(crate) fn forward(
    settings: &Deadlines,
    deadline: Option<&Deadline>,
    headers: &mut HeaderMap,
    uptime: Duration,
) {
    let Some(own) = &settings.header else { return };
    if !settings.are_forwarded {
        headers.remove(own);
        headers.remove(GRPC_TIMEOUT);
    } else if let Some(deadline) = deadline {
        deadline.forward(headers, uptime);
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

    const ARRIVED: Duration = Duration::from_secs(1_000);

    fn deadline(form: Form, lines: &[(&'static str, &str)]) -> Option<Deadline> {
        let line = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).expect("a value"))
        };
        Deadline::of(&Deadlines::default(), &lines.iter().map(line).collect(), form, ARRIVED)
    }

    #[test]
    fn only_a_single_plain_number_is_a_deadline() {
        let left = |value| {
            deadline(Form::Json, &[("x-request-timeout-ms", value)])
                .map(|found| found.left(ARRIVED).as_millis())
        };
        assert_eq!((left("999999999"), left("007"), left("0")), (Some(999_999_999), Some(7), Some(0)));
        for bad in ["", "1000000000", "-1", "+1", "1.5", "1s", " 1", "0x10", "١"] {
            assert_eq!(left(bad), None, "{bad:?}");
        }
        let line = ("x-request-timeout-ms", "5");
        assert!(deadline(Form::Json, &[line, line]).is_none(), "which one?");
        assert!(deadline(Form::Json, &[("grpc-timeout", "5S")]).is_none());
    }

    #[test]
    fn grpc_has_a_header_and_units_of_its_own() {
        let left = |value| deadline(Form::Grpc, &[("grpc-timeout", value)]).map(|found| found.left(ARRIVED));
        assert_eq!(left("2H"), Some(Duration::from_hours(2)));
        assert_eq!(left("99999999M"), Some(Duration::from_mins(99_999_999)));
        assert_eq!((left("3S"), left("4m")), (Some(Duration::from_secs(3)), Some(Duration::from_millis(4))));
        assert_eq!((left("5u"), left("6n")), (Some(Duration::from_micros(5)), Some(Duration::from_nanos(6))));
        for bad in ["", "5", "S", "123456789S", "5s", "5 S", "5é", "-5S"] {
            assert_eq!(left(bad), None, "{bad:?}");
        }
        assert!(deadline(Form::Grpc, &[("x-request-timeout-ms", "5")]).is_none());
    }

    #[test]
    fn too_little_time_is_as_bad_as_none() {
        let settings = Deadlines { min: Duration::from_millis(10), ..Deadlines::default() };
        let headers =
            HeaderMap::from_iter([(crate::names::REQUEST_TIMEOUT_MS, HeaderValue::from_static("50"))]);
        let deadline = Deadline::of(&settings, &headers, Form::Json, ARRIVED).expect("valid");
        let at = |millis| ARRIVED + Duration::from_millis(millis);
        assert!(!deadline.is_too_short(at(40)) && deadline.is_too_short(at(41)));
        assert!(!deadline.is_over(at(49)) && deadline.is_over(at(50)));
    }

    #[test]
    fn the_handler_learns_what_is_left_never_more_and_never_zero() {
        let forwarded = |form, name, value, later| {
            let mut headers = HeaderMap::new();
            let found = deadline(form, &[(name, value)]);
            forward(&Deadlines::default(), found.as_ref(), &mut headers, ARRIVED + later);
            headers[name].to_str().expect("ASCII").to_owned()
        };
        let millis = Duration::from_millis;
        assert_eq!(forwarded(Form::Json, "x-request-timeout-ms", "5000", millis(1)), "4999");
        assert_eq!(forwarded(Form::Json, "x-request-timeout-ms", "5000", millis(6_000)), "1");
        assert_eq!(forwarded(Form::Grpc, "grpc-timeout", "1500u", millis(0)), "1m");
        assert_eq!(forwarded(Form::Grpc, "grpc-timeout", "100H", millis(1)), "359999S");
        let sent = [(GRPC_TIMEOUT, "2s"), (crate::names::REQUEST_TIMEOUT_MS, "5")];
        let mut headers =
            HeaderMap::from_iter(sent.map(|(name, value)| (name, HeaderValue::from_static(value))));
        let settings = Deadlines { are_forwarded: false, ..Deadlines::default() };
        forward(&settings, None, &mut headers, ARRIVED);
        assert!(headers.is_empty(), "also what is not valid, or not meant for this kind of request");
    }
}
