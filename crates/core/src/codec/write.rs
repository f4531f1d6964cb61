//! Writing numbers, times, texts and byte strings.

use crate::time::Time;
pub(super) use crate::varint::varint;

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
