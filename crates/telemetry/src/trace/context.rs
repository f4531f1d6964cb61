//! Reads and writes `traceparent` (W3C Trace Context). A header that is only partly valid is ignored.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
pub(super) const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// The length of `traceparent` in its only version.
const LENGTH: usize = 55;

/// A position in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Context {
    /// The trace's id; not zero.
    pub trace: u128,
    /// The span's id; not zero.
    pub span: u64,
    /// Whether the trace is sampled.
    pub is_sampled: bool,
}

impl Context {
    /// The context in the headers, if there is exactly one valid header.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(TRACEPARENT).iter();
        let line = lines.next()?;
        // Two headers: the parent is ambiguous.
        if lines.next().is_some() {
            return None;
        }
        Self::parse(line.to_str().ok()?)
    }

    /// Reads a `traceparent`. A later version may be longer; the rest is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_of_length = version.len() == 2 && trace.len() == 32 && span.len() == 16 && flags.len() == 2;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let are_digits = [version, trace, span, flags].iter().all(|part| part.bytes().all(is_digit));
        let is_ended = more.is_empty() || (version != "00" && more.starts_with('-'));
        if !is_of_length || !are_digits || !is_ended || version == "ff" || parts.next().is_some() {
            return None;
        }
        let trace = u128::from_str_radix(trace, 16).ok().filter(|trace| *trace != 0)?;
        let span = u64::from_str_radix(span, 16).ok().filter(|span| *span != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        Some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }

    /// As the header's value.
    pub fn header(&self) -> HeaderValue {
        HeaderValue::try_from(self.to_string()).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDINARY: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_read_and_written_as_it_was() {
        let read = Context::parse(ORDINARY).expect("a context");
        assert_eq!((read.span, read.is_sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(read.to_string(), ORDINARY);
        let unsampled = Context::parse(&ORDINARY.replace("-01", "-02")).expect("a context");
        assert!(!unsampled.is_sampled, "an unknown flag is not the sampled flag");
    }

    #[test]
    fn a_partly_valid_header_is_ignored() {
        for bad in [
            "",
            "00",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert_eq!(Context::parse(bad), None, "{bad}");
        }
        assert!(
            Context::parse(&format!("{}-more", ORDINARY.replacen("00", "01", 1))).is_some(),
            "a later version"
        );
    }

    #[test]
    fn two_lines_are_no_context() {
        let mut headers = HeaderMap::new();
        headers.append(TRACEPARENT, HeaderValue::from_static(ORDINARY));
        assert!(Context::of(&headers).is_some());
        headers.append(TRACEPARENT, HeaderValue::from_static(ORDINARY));
        assert_eq!(Context::of(&headers), None);
    }
}
