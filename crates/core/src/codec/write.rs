//! Writing numbers, times, texts and byte strings.

use crate::time::Time;

/// LEB128: seven bits per byte, lowest first, the high bit set on all bytes except the last.
#[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are kept")]
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A length or count. (No platform has lengths beyond 64 bits.)
pub(super) fn length(out: &mut Vec<u8>, length: usize) {
    varint(out, length as u64);
}

pub(super) fn time(out: &mut Vec<u8>, time: Time) {
    varint(out, time.as_millis());
}

/// A byte string or a text, after its length.
pub(super) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    length(out, bytes.len());
    out.extend_from_slice(bytes);
}
