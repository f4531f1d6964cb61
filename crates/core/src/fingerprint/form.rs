//! `application/x-www-form-urlencoded` bodies.
//!
//! Decodes pairs and writes their canonical text. Every body is a valid list of pairs: a percent sign without two
//! digits is an ordinary character.
//!
//! The canonical text has each pair as `name=value` with `&` between pairs, every byte other than an ASCII letter,
//! digit, `-`, `.`, `_` or `~` as `%XX`, sorted by decoded name; pairs with the same name keep their order.
//!
//! Memory: four bytes for each pair, allocated only if the pairs are not sorted. A pair takes at least two bytes of
//! body.

use std::cmp::Ordering;

use super::error::{Error, ErrorKind};
use super::sink::Sink;

/// The decoded bytes of a name or a value. The end is found while decoding: searching for it first would make every
/// comparison of names as long as the value after them.
struct Decoded<'a> {
    rest: &'a [u8],
    is_name: bool,
}

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let (byte, rest) = match self.rest {
            [] | [b'&', ..] => return None,
            [b'=', ..] if self.is_name => return None,
            [b'%', high, low, rest @ ..] => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, rest),
                _ => (b'%', &self.rest[1..]),
            },
            [b'+', rest @ ..] => (b' ', rest),
            [byte, rest @ ..] => (*byte, rest),
        };
        self.rest = rest;
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

/// The starts of the pairs of a body. Empty pairs (`a=1&&b=2`) are skipped.
fn starts(body: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    body.split(|byte| *byte == b'&').filter_map(move |pair| {
        let start = at;
        at += pair.len() + 1;
        (!pair.is_empty()).then_some(start)
    })
}

fn name(body: &[u8], start: usize) -> Decoded<'_> {
    Decoded { rest: &body[start..], is_name: true }
}

fn compare_names(body: &[u8], one: usize, two: usize) -> Ordering {
    name(body, one).cmp(name(body, two))
}

/// Writes the canonical text of a body.
pub(super) fn write<S: Sink>(body: &[u8], sink: &mut S) -> Result<(), Error> {
    if starts(body).is_sorted_by(|one, two| compare_names(body, *one, *two).is_le()) {
        write_pairs(body, starts(body), sink);
        return Ok(());
    }
    let narrow = |start| u32::try_from(start).map_err(|_| too_large());
    let mut order = Vec::with_capacity(starts(body).count());
    for start in starts(body) {
        order.push(narrow(start)?);
    }
    // Positions break ties, so equal names keep their order; a stable sort would allocate.
    order.sort_unstable_by(|one, two| compare_names(body, *one as usize, *two as usize).then(one.cmp(two)));
    write_pairs(body, order.into_iter().map(|start| start as usize), sink);
    Ok(())
}

fn too_large() -> Error {
    Error::new(ErrorKind::TooLarge, "form body", "bodies of 4 GiB or more are not supported")
}

fn write_pairs<S: Sink>(body: &[u8], starts: impl Iterator<Item = usize>, sink: &mut S) {
    for (number, start) in starts.enumerate() {
        if number > 0 {
            sink.push(b'&');
        }
        let mut name = name(body, start);
        write_encoded(&mut name, sink);
        sink.push(b'=');
        if let Some(rest) = name.rest.strip_prefix(b"=") {
            write_encoded(&mut Decoded { rest, is_name: false }, sink);
        }
    }
}

fn write_encoded<S: Sink>(bytes: &mut Decoded<'_>, sink: &mut S) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            sink.push(byte);
        } else {
            sink.write(&[b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        }
    }
}
