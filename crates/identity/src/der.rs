//! The part of DER that keys and certificates need. Only the shortest form of a length is accepted.

/// The tag and content of the first item in `input`, and the rest.
pub(super) fn item(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, length, rest) = match input {
        [tag, length @ 0..=0x7f, rest @ ..] | [tag, 0x81, length @ 0x80..=0xff, rest @ ..] => {
            (*tag, usize::from(*length), rest)
        }
        [tag, 0x82, high @ 1..=0xff, low, rest @ ..] => {
            (*tag, usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// The content of the first item in `input`, which must have this tag, and the rest.
pub(super) fn take(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = item(input)?;
    (found == tag).then_some((content, rest))
}
