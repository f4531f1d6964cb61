//! `application/x-www-form-urlencoded` bodies.
//!
//! What lives here: decoding pairs, and their canonical text. What must never: an error. Every body is a list of
//! pairs; a percent sign without two digits stands for itself.
//!
//! The canonical text has each pair as `name=value` with `&` between pairs, every byte other than an ASCII letter,
//! digit, `-`, `.`, `_` or `~` as `%XX`, sorted by decoded name; pairs of one name stay in the order they came.
//!
//! Memory: four bytes for each pair, allocated once and only where the pairs are out of order. A pair takes at
//! least two bytes of body.

use std::cmp::Ordering;

use super::error::{Error, ErrorKind};
use super::sink::Sink;

/// The decoded bytes of a name or a value.
#[derive(Clone)]
struct Decoded<'a>(&'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match self.0 {
            [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, rest),
                _ => (b'%', &self.0[1..]),
            },
            [b'+', rest @ ..] => (b' ', rest),
            [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        self.0 = rest;
        Some(byte)
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The pairs of a body, undecoded. Empty ones (`a=1&&b=2`) are none.
fn pairs(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    body.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty())
}

fn split(pair: &[u8]) -> (Decoded<'_>, Decoded<'_>) {
    match pair.iter().position(|byte| *byte == b'=') {
        Some(at) => (Decoded(&pair[..at]), Decoded(&pair[at + 1..])),
        None => (Decoded(pair), Decoded(b"")),
    }
}

fn compare_names(one: &[u8], two: &[u8]) -> Ordering {
    split(one).0.cmp(split(two).0)
}

/// Writes the canonical text of a body.
pub(super) fn write<S: Sink>(body: &[u8], sink: &mut S) -> Result<(), Error> {
    if pairs(body).is_sorted_by(|one, two| compare_names(one, two).is_le()) {
        write_pairs(pairs(body), sink);
        return Ok(());
    }
    if u32::try_from(body.len()).is_err() {
        return Err(Error::new(ErrorKind::TooLarge, "form body", "4 GiB or more cannot be put in order"));
    }
    let pair_at = |start: u32| pairs(&body[start as usize..]).next().unwrap_or_default();
    let mut starts = Vec::with_capacity(pairs(body).count());
    let mut at = 0_u32;
    for piece in body.split(|byte| *byte == b'&') {
        if !piece.is_empty() {
            starts.push(at);
        }
        // Below 4 GiB, as the whole body is.
        at = at.saturating_add(u32::try_from(piece.len()).unwrap_or(u32::MAX)).saturating_add(1);
    }
    // Equal names keep their order because their positions decide; a stable sort would need memory of its own.
    starts.sort_unstable_by(|one, two| compare_names(pair_at(*one), pair_at(*two)).then(one.cmp(two)));
    write_pairs(starts.iter().map(|start| pair_at(*start)), sink);
    Ok(())
}

fn write_pairs<'a, S: Sink>(pairs: impl Iterator<Item = &'a [u8]>, sink: &mut S) {
    for (number, pair) in pairs.enumerate() {
        if number > 0 {
            sink.push(b'&');
        }
        let (name, value) = split(pair);
        write_encoded(name, sink);
        sink.push(b'=');
        write_encoded(value, sink);
    }
}

fn write_encoded<S: Sink>(bytes: Decoded<'_>, sink: &mut S) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            sink.push(byte);
        } else {
            sink.write(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}
