//! The handler's report about its effect.
//!
//! It is read from the response and never reaches a client.

use crate::names;
use http::{HeaderMap, response};
use semel::core::classify::Steer;

/// The handler's report about its effect, if there is one: from its handle (`reported`), as a [`Steer`] in the
/// response's extensions, or in the header `Idempotency-Outcome`. Unknown values are ignored; contradicting values
/// leave the outcome in doubt.
pub(crate) fn of(
    reported: Option<Steer>,
    parts: &response::Parts,
    trailers: Option<&HeaderMap>,
) -> Option<Steer> {
    let lines = [Some(&parts.headers), trailers].into_iter().flatten();
    let words = lines.flat_map(|headers| headers.get_all(names::OUTCOME));
    let words = words.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let by_code = reported.into_iter().chain(parts.extensions.get::<Steer>().copied());
    let mut reports = by_code.chain(words.filter_map(read));
    let first = reports.next()?;
    Some(if reports.all(|other| other == first) { first } else { Steer::Unknown })
}

fn read(word: &[u8]) -> Option<Steer> {
    let word = word.trim_ascii();
    let known = [
        (&b"applied"[..], Steer::Applied),
        (b"not-applied", Steer::NotApplied),
        (b"unknown", Steer::Unknown),
    ];
    known.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, steer)| *steer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(words: &[&str]) -> Option<Steer> {
        let mut response = http::Response::builder();
        for word in words {
            response = response.header(names::OUTCOME, *word);
        }
        of(None, &response.body(()).expect("a response").into_parts().0, None)
    }

    #[test]
    fn known_words_are_taken_and_others_ignored() {
        assert_eq!(read_all(&["applied"]), Some(Steer::Applied));
        assert_eq!(read_all(&[" Not-Applied "]), Some(Steer::NotApplied));
        assert_eq!(read_all(&["unknown"]), Some(Steer::Unknown));
        assert_eq!(read_all(&["maybe"]), None);
        assert_eq!(read_all(&["maybe", "applied"]), Some(Steer::Applied));
        assert_eq!(read_all(&[]), None);
    }

    #[test]
    fn contradicting_reports_leave_the_outcome_in_doubt() {
        assert_eq!(read_all(&["applied", "not-applied"]), Some(Steer::Unknown));
        assert_eq!(read_all(&["applied", "applied"]), Some(Steer::Applied));
        assert_eq!(read_all(&["not-applied, unknown"]), Some(Steer::Unknown));
        assert_eq!(read_all(&["maybe,applied"]), Some(Steer::Applied));
        let mut response = http::Response::new(());
        response.extensions_mut().insert(Steer::NotApplied);
        let (parts, ()) = response.into_parts();
        assert_eq!(of(None, &parts, None), Some(Steer::NotApplied));
        assert_eq!(of(Some(Steer::NotApplied), &parts, None), Some(Steer::NotApplied));
        assert_eq!(of(Some(Steer::Applied), &parts, None), Some(Steer::Unknown));
    }
}
