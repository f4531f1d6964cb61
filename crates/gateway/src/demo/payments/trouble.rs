//! The ways in which the demo's payment service can misbehave, and how a request asks for one.

use http::{HeaderMap, HeaderName};

/// The header by which a request asks for trouble. It is not part of the payload: a retry may leave it out.
pub const HEADER: HeaderName = HeaderName::from_static("demo-trouble");

/// What goes wrong with one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// The charge is made at once; the response is slow.
    Slow,
    /// The charge is made, and the connection is closed without a response.
    HangUp,
    /// The connection is closed before anything is charged.
    Crash,
    /// 503 with `Retry-After`, and nothing is charged.
    Busy,
}

impl Trouble {
    /// Every kind of trouble.
    pub const ALL: [Self; 4] = [Self::Slow, Self::HangUp, Self::Crash, Self::Busy];

    /// As a request spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::HangUp => "hang-up",
            Self::Crash => "crash",
            Self::Busy => "busy",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trouble| trouble.as_str() == name)
    }

    /// What the header asks for.
    pub(super) fn of_headers(headers: &HeaderMap) -> Option<Self> {
        Self::named(headers.get(HEADER)?.to_str().ok()?)
    }

    /// What a payment method stands for, in the manner of test cards: `tok_slow`, `pm_hang-up`.
    pub(super) fn of_method(method: &str) -> Option<Self> {
        Self::named(method.strip_prefix("tok_").or_else(|| method.strip_prefix("pm_"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_chosen_by_header_or_payment_method() {
        for trouble in Trouble::ALL {
            let name = trouble.as_str();
            let headers = HeaderMap::from_iter([(HEADER, name.parse().expect("a value"))]);
            assert_eq!(Trouble::of_headers(&headers), Some(trouble));
            assert_eq!(Trouble::of_method(&format!("tok_{name}")), Some(trouble));
            assert_eq!(Trouble::of_method(&format!("pm_{name}")), Some(trouble));
            assert_eq!(Trouble::of_method(name), None);
        }
        assert_eq!(Trouble::of_headers(&HeaderMap::new()), None);
        assert_eq!(Trouble::of_method("tok_visa"), None);
    }
}
