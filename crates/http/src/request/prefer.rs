//! `Prefer: respond-async` (RFC 7240).
//!
//! Finds and removes that preference. Other preferences are unchanged.

use http::{HeaderMap, HeaderName, HeaderValue};

const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Whether the client prefers an asynchronous response. Removes this preference; others stay.
pub(crate) fn take_respond_async(headers: &mut HeaderMap) -> bool {
    let wanted = headers.get_all(PREFER).iter().any(|line| split(line).iter().any(|one| is_async(one)));
    if !wanted {
        return false;
    }
    let mut others: Vec<HeaderValue> = Vec::new();
    for line in headers.get_all(PREFER) {
        let left: Vec<_> = split(line).into_iter().filter(|one| !is_async(one)).collect();
        if !left.is_empty() {
            others.extend(HeaderValue::from_bytes(&left.join(b", ".as_slice())));
        }
    }
    headers.remove(PREFER);
    for other in others {
        headers.append(PREFER, other);
    }
    true
}

/// The preferences of one line. Commas in quotes do not separate.
fn split(line: &HeaderValue) -> Vec<&[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = line.as_bytes().split(move |byte| {
        let was_escaped = std::mem::take(&mut escaped);
        match byte {
            b'\\' if quoted && !was_escaped => escaped = true,
            b'"' if !was_escaped => quoted = !quoted,
            b',' => return !quoted,
            _ => {}
        }
        false
    });
    parts.map(<[u8]>::trim_ascii).filter(|part| !part.is_empty()).collect()
}

fn is_async(preference: &[u8]) -> bool {
    let end = preference.iter().position(|byte| matches!(byte, b';' | b'=')).unwrap_or(preference.len());
    preference[..end].trim_ascii().eq_ignore_ascii_case(b"respond-async")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(lines: &[&'static str]) -> (bool, Vec<String>) {
        let mut headers: HeaderMap =
            lines.iter().map(|line| (PREFER, HeaderValue::from_static(line))).collect();
        let taken = take_respond_async(&mut headers);
        let left = headers.get_all(PREFER).iter().map(|value| value.to_str().expect("ASCII").to_owned());
        (taken, left.collect())
    }

    #[test]
    fn only_the_preference_is_removed_in_any_spelling() {
        assert_eq!(after(&["respond-async"]), (true, vec![]));
        assert_eq!(
            after(&["return=minimal, Respond-Async;x=1, wait=10"]),
            (true, vec!["return=minimal, wait=10".into()])
        );
        assert_eq!(after(&["a", "respond-async"]), (true, vec!["a".into()]));
        for other in [
            "return=minimal",
            "x=\"respond-async, respond-async\"",
            "x=\"\\\",respond-async\"",
            "respond-asynchronous",
        ] {
            assert_eq!(after(&[other]), (false, vec![other.to_owned()]));
        }
    }
}
