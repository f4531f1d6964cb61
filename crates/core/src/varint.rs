//! Numbers in as few bytes as they need, in stored records and in the header fields that are kept in memory.

/// LEB128: seven bits per byte, lowest first, the high bit set on all bytes except the last.
#[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are kept")]
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
