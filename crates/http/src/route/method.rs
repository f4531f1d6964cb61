//! Methods, independent of letter case.
//!
//! The normal form of methods, and which ones are valid. A request is passed on with the client's own spelling.

use super::settings::RouteSettingsError;
use http::Method;
use semel::core::scope::normal_method;
use std::borrow::Cow;

/// Those of RFC 9110, and PATCH (RFC 5789).
const STANDARD: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];

/// The other methods in IANA's registry, without `PRI`, which no request can have.
const REGISTERED: [&str; 30] = [
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// A method in its normal form.
pub(crate) fn folded(method: &Method) -> Method {
    match normal_method(method.as_str()) {
        Cow::Borrowed(_) => method.clone(),
        // A method in upper case is still valid.
        Cow::Owned(upper) => Method::from_bytes(upper.as_bytes()).unwrap_or_else(|_| method.clone()),
    }
}

/// A method of the settings, in its normal form. One that is at most two edits away from a standard method is a
/// misspelling, and is refused: no request would ever match it.
pub fn check_method(method: &Method) -> Result<Method, RouteSettingsError> {
    let method = folded(method);
    if is_registered_method(&method) {
        return Ok(method);
    }
    let found = method.as_str();
    let nearest = |edits| STANDARD.iter().find(|known| is_within(found.as_bytes(), known.as_bytes(), edits));
    match (1..=EDITS_MAX).find_map(nearest) {
        Some(meant) => Err(RouteSettingsError::Method { found: found.to_owned(), meant }),
        None => Ok(method),
    }
}

/// Whether a method, in any letter case, is in IANA's registry. Others may be a service's own, or misspelled.
pub fn is_registered_method(method: &Method) -> bool {
    let method = normal_method(method.as_str());
    STANDARD.iter().chain(&REGISTERED).any(|known| *known == method)
}

const EDITS_MAX: u32 = 2;

/// Whether two words are at most `edits` edits apart: a letter inserted, removed or replaced, or two swapped.
fn is_within(one: &[u8], other: &[u8], edits: u32) -> bool {
    let (one, other) = match (one, other) {
        ([a, one @ ..], [b, other @ ..]) if a == b => return is_within(one, other, edits),
        both => both,
    };
    let Some(left) = edits.checked_sub(1) else { return one.is_empty() && other.is_empty() };
    match (one, other) {
        ([], []) => true,
        ([], [_, other @ ..]) => is_within(one, other, left),
        ([_, one @ ..], []) => is_within(one, other, left),
        ([a, after_one @ ..], [b, after_other @ ..]) => {
            let is_swapped = after_one.first() == Some(b) && after_other.first() == Some(a);
            is_within(after_one, other, left)
                || is_within(one, after_other, left)
                || is_within(after_one, after_other, left)
                || is_swapped && is_within(&after_one[1..], &after_other[1..], left)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn method(text: &str) -> Method {
        text.parse().expect("a token")
    }

    #[test]
    fn known_methods_are_taken_in_any_letter_case() {
        for known in STANDARD.into_iter().chain(REGISTERED) {
            let mixed = known[..1].to_owned() + &known[1..].to_ascii_lowercase();
            for text in [known.to_owned(), known.to_ascii_lowercase(), mixed] {
                assert_eq!(check_method(&method(&text)), Ok(method(known)), "{text}");
                assert!(is_registered_method(&method(&text)), "{text}");
            }
        }
    }

    #[test]
    fn a_mistyped_method_is_refused_with_a_suggestion() {
        for (text, meant) in [
            ("POTS", "POST"),
            ("pots", "POST"),
            ("PSOT", "POST"),
            ("POSTT", "POST"),
            ("PST", "POST"),
            ("PACTH", "PATCH"),
            ("PATHC", "PATCH"),
            ("PATH", "PATCH"),
            ("DELTE", "DELETE"),
            ("DEL-ETE", "DELETE"),
        ] {
            let found = text.to_ascii_uppercase();
            assert_eq!(
                check_method(&method(text)),
                Err(RouteSettingsError::Method { found, meant }),
                "{text}"
            );
        }
        assert_eq!(check_method(&method("REMOTE")), Ok(method("REMOTE")), "four letters are another");
    }

    #[test]
    fn a_custom_method_is_accepted_and_reported_as_unregistered() {
        for text in ["PURGE", "frobnicate", "M-SEARCH"] {
            assert_eq!(check_method(&method(text)), Ok(method(&text.to_ascii_uppercase())));
            assert!(!is_registered_method(&method(text)));
        }
    }
}
