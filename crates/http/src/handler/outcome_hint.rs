//! The handler's report about its effect.
//!
//! It is read from the response and never reaches a client.

use crate::names;
use http::{HeaderMap, response};

#[doc(inline)]
pub use semel::core::classify::OutcomeHint;

/// The handler's report about its effect, if there is one: from its handle (`reported`), as an [`OutcomeHint`] in the
/// response's extensions, or in the header `Idempotency-Outcome`. Unknown values are ignored; contradicting values
/// leave the outcome in doubt.
pub(crate) fn of(
    reported: Option<OutcomeHint>,
    parts: &response::Parts,
    trailers: Option<&HeaderMap>,
) -> Option<OutcomeHint> {
    let lines = [Some(&parts.headers), trailers].into_iter().flatten();
    let words = lines.flat_map(|headers| headers.get_all(names::OUTCOME));
    let words = words.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
    let by_code = reported.into_iter().chain(parts.extensions.get::<OutcomeHint>().copied());
    let mut reports = by_code.chain(words.filter_map(read));
    let first = reports.next()?;
    Some(if reports.all(|other| other == first) { first } else { OutcomeHint::Unknown })
}

fn read(word: &[u8]) -> Option<OutcomeHint> {
    let word = word.trim_ascii();
    let known = [
        (&b"applied"[..], OutcomeHint::Applied),
        (b"not-applied", OutcomeHint::NotApplied),
        (b"unknown", OutcomeHint::Unknown),
    ];
    known.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(words: &[&str]) -> Option<OutcomeHint> {
        let mut response = http::Response::builder();
        for word in words {
            response = response.header(names::OUTCOME, *word);
        }
        of(None, &response.body(()).expect("a response").into_parts().0, None)
    }

    #[test]
    fn known_words_are_taken_and_others_ignored() {
        assert_eq!(read_all(&["applied"]), Some(OutcomeHint::Applied));
        assert_eq!(read_all(&[" Not-Applied "]), Some(OutcomeHint::NotApplied));
        assert_eq!(read_all(&["unknown"]), Some(OutcomeHint::Unknown));
        assert_eq!(read_all(&["maybe"]), None);
        assert_eq!(read_all(&["maybe", "applied"]), Some(OutcomeHint::Applied));
        assert_eq!(read_all(&[]), None);
    }

    #[test]
    fn contradicting_reports_leave_the_outcome_in_doubt() {
        assert_eq!(read_all(&["applied", "not-applied"]), Some(OutcomeHint::Unknown));
        assert_eq!(read_all(&["applied", "applied"]), Some(OutcomeHint::Applied));
        assert_eq!(read_all(&["not-applied, unknown"]), Some(OutcomeHint::Unknown));
        assert_eq!(read_all(&["maybe,applied"]), Some(OutcomeHint::Applied));
        let mut response = http::Response::new(());
        response.extensions_mut().insert(OutcomeHint::NotApplied);
        let (parts, ()) = response.into_parts();
        assert_eq!(of(None, &parts, None), Some(OutcomeHint::NotApplied));
        assert_eq!(of(Some(OutcomeHint::NotApplied), &parts, None), Some(OutcomeHint::NotApplied));
        assert_eq!(of(Some(OutcomeHint::Applied), &parts, None), Some(OutcomeHint::Unknown));
    }
}
