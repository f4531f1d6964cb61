//! JSON strings: checking, comparing by content, and writing in canonical form.
//!
//! Positions are byte offsets in the body; a string is identified by the position of its opening quotation mark.

use std::cmp::Ordering;

use super::super::sink::Sink;
use super::Problem;

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = ONES << 7;

/// The first quotation mark, backslash or control character from `at` on.
///
/// Looks at eight bytes at a time. Subtracting from a byte sets its high bit if the byte is small enough; borrows
/// only affect later bytes, so the first hit is always correct.
#[inline]
pub(super) fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let word = u64::from_le_bytes(*chunk);
        let quote = word ^ (ONES * u64::from(b'"'));
        let backslash = word ^ (ONES * u64::from(b'\\'));
        let hits = (quote.wrapping_sub(ONES) & !quote)
            | (backslash.wrapping_sub(ONES) & !backslash)
            | (word.wrapping_sub(ONES * 0x20) & !word);
        let hits = hits & HIGHS;
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20)) {
        at += 1;
    }
    at
}

/// Checks the string at `start` and returns the position after it.
#[inline]
pub(super) fn check(bytes: &[u8], start: usize) -> Result<usize, Problem> {
    let mut at = start + 1;
    loop {
        at = plain_end(bytes, at);
        match bytes.get(at) {
            Some(b'"') => return Ok(at + 1),
            Some(b'\\') => at = check_escape(bytes, at)?,
            Some(_) => return Err(Problem("a control character in a string must be escaped", at)),
            None => return Err(Problem("unterminated string", start)),
        }
    }
}

#[cold]
fn check_escape(bytes: &[u8], at: usize) -> Result<usize, Problem> {
    match bytes.get(at + 1) {
        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(at + 2),
        Some(b'u') => match code_unit(bytes, at) {
            None => Err(Problem("\\u must be followed by four hexadecimal digits", at)),
            Some(0xd800..0xdc00) => match low_surrogate(bytes, at + 6) {
                Some(_) => Ok(at + 12),
                None => Err(Problem("lone surrogate", at)),
            },
            Some(0xdc00..0xe000) => Err(Problem("lone surrogate", at)),
            Some(_) => Ok(at + 6),
        },
        _ => Err(Problem("invalid escape in a string", at)),
    }
}

/// The code unit of `\uXXXX` at `at`.
fn code_unit(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at + 2..at + 6)?.iter().try_fold(0, |unit, byte| {
        let digit = char::from(*byte).to_digit(16)?;
        Some(unit << 4 | digit)
    })
}

fn low_surrogate(bytes: &[u8], at: usize) -> Option<u32> {
    let unit = if bytes.get(at..at + 2)? == b"\\u" { code_unit(bytes, at)? } else { return None };
    (0xdc00..0xe000).contains(&unit).then_some(unit)
}

/// The character of the checked escape at `at`, and the position after it.
fn unescape(bytes: &[u8], at: usize) -> (char, usize) {
    let c = match bytes[at + 1] {
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let unit = code_unit(bytes, at).unwrap_or_default();
            let Some(low) = low_surrogate(bytes, at + 6).filter(|_| (0xd800..0xdc00).contains(&unit)) else {
                return (char::from_u32(unit).unwrap_or_default(), at + 6);
            };
            let code = 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
            return (char::from_u32(code).unwrap_or_default(), at + 12);
        }
        other => char::from(other),
    };
    (c, at + 2)
}

/// The unescaped UTF-8 bytes of a checked string, from a position inside it on.
struct UnescapedBytes<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The remaining bytes of the last escape's character.
    rest: [u8; 4],
    rest_at: usize,
}

impl<'a> UnescapedBytes<'a> {
    fn from(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at, rest: [0; 4], rest_at: 4 }
    }
}

impl Iterator for UnescapedBytes<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if let Some(byte) = self.rest.get(self.rest_at) {
            self.rest_at += 1;
            return Some(*byte);
        }
        match self.bytes[self.at] {
            b'"' => None,
            b'\\' => {
                let (c, after) = unescape(self.bytes, self.at);
                self.at = after;
                let mut utf8 = [0; 4];
                let len = c.encode_utf8(&mut utf8).len();
                self.rest_at = 4 - len;
                self.rest[self.rest_at..].copy_from_slice(&utf8[..len]);
                self.next()
            }
            byte => {
                self.at += 1;
                Some(byte)
            }
        }
    }
}

/// Compares two checked strings by their unescaped UTF-8 bytes.
#[inline]
pub(super) fn compare(bytes: &[u8], one: usize, two: usize) -> Ordering {
    let (mut a, mut b) = (one + 1, two + 1);
    loop {
        match (bytes[a], bytes[b]) {
            (b'\\', _) | (_, b'\\') => {
                return UnescapedBytes::from(bytes, a).cmp(UnescapedBytes::from(bytes, b));
            }
            (b'"', b'"') => return Ordering::Equal,
            (b'"', _) => return Ordering::Less,
            (_, b'"') => return Ordering::Greater,
            (x, y) if x != y => return x.cmp(&y),
            _ => (a, b) = (a + 1, b + 1),
        }
    }
}

/// Compares a checked string with plain text.
pub(super) fn compare_with(bytes: &[u8], start: usize, text: &str) -> Ordering {
    UnescapedBytes::from(bytes, start + 1).cmp(text.bytes())
}

/// The unescaped text of a checked string.
pub(super) fn text(bytes: &[u8], start: usize) -> String {
    let spelled: Vec<u8> = UnescapedBytes::from(bytes, start + 1).collect();
    String::from_utf8(spelled).unwrap_or_default()
}

/// The position after a checked string.
#[inline]
pub(super) fn end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        at = plain_end(bytes, at);
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
}

/// Writes a checked string with only the escapes it needs, and returns the position after it.
#[inline]
pub(super) fn write<S: Sink>(bytes: &[u8], start: usize, sink: &mut S) -> usize {
    let quote = plain_end(bytes, start + 1);
    if bytes[quote] == b'"' {
        sink.write(&bytes[start..=quote]);
        return quote + 1;
    }
    sink.write(&bytes[start..quote]);
    write_escaped(bytes, quote, sink)
}

/// Continues from the first backslash.
fn write_escaped<S: Sink>(bytes: &[u8], mut at: usize, sink: &mut S) -> usize {
    loop {
        let plain = plain_end(bytes, at);
        sink.write(&bytes[at..plain]);
        if bytes[plain] == b'"' {
            sink.push(b'"');
            return plain + 1;
        }
        let (c, after) = unescape(bytes, plain);
        write_char(c, sink);
        at = after;
    }
}

fn write_char<S: Sink>(c: char, sink: &mut S) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    match c {
        '"' => sink.write(b"\\\""),
        '\\' => sink.write(b"\\\\"),
        '\0'..' ' => {
            let code = c as usize;
            sink.write(&[b'\\', b'u', b'0', b'0', HEX[code >> 4], HEX[code & 15]]);
        }
        c => sink.write(c.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Writes plain text as a JSON string, escaped as [`write`] does.
pub(super) fn quote<S: Sink>(text: &str, sink: &mut S) {
    sink.push(b'"');
    text.chars().for_each(|c| write_char(c, sink));
    sink.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_special_byte_is_found_at_any_offset() {
        for special in [b'"', b'\\', 0, 0x1f] {
            for before in 0..40 {
                // Bytes that differ from the special ones by one bit, and bytes with the high bit set.
                for filler in [b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
                    let mut bytes = vec![filler; before];
                    bytes.push(special);
                    bytes.extend([b'"', filler, b'\\', 3, filler, filler, filler, filler]);
                    assert_eq!(plain_end(&bytes, 0), before);
                }
            }
        }
        assert_eq!(plain_end(b"abc", 0), 3);
        assert_eq!(plain_end(b"abc", 9), 9);
    }
}
