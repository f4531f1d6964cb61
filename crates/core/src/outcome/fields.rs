//! Headers and trailers, packed.
//!
//! A list of names and values in one block of bytes, in the codec's layout, so that reading a record makes one
//! reference instead of two per header. Case, order and repetition are kept.

use crate::varint::varint;
use bytes::Bytes;
use std::fmt;

/// Headers or trailers in order, repeated ones included, exactly as they will be replayed.
///
/// ```
/// use semel_core::outcome::Fields;
///
/// let fields = Fields::from_iter([("link", "</a>"), ("etag", "\"7\""), ("link", "</b>")]);
/// assert_eq!(fields.len(), 3);
/// let links: Vec<&[u8]> = fields.iter().filter(|(name, _)| name == b"link").map(|(_, value)| value).collect();
/// assert_eq!(links, [b"</a>", b"</b>"]);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Fields {
    /// Each name and each value after its length, as a varint.
    packed: Bytes,
    count: usize,
}

impl Fields {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each name with its value, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.packed[..];
        std::iter::from_fn(move || {
            let (name, after) = unpack(rest)?;
            let (value, after) = unpack(after)?;
            rest = after;
            Some((name, value))
        })
    }

    /// A name or value from [`iter`](Self::iter) as owned bytes: shared, not copied.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.packed.slice_ref(part)
    }

    /// The block as the codec writes it.
    pub(crate) fn packed(&self) -> &Bytes {
        &self.packed
    }

    /// Copies shared buffers into memory of its own.
    pub(crate) fn detach(&mut self) {
        self.packed = Bytes::copy_from_slice(&self.packed);
    }

    /// A block of `count` fields that the codec has checked.
    pub(crate) fn from_packed(packed: Bytes, count: usize) -> Self {
        Self { packed, count }
    }
}

impl<N: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(N, V)> for Fields {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let mut packed = Vec::new();
        let mut count = 0;
        for (name, value) in fields {
            pack(&mut packed, name.as_ref());
            pack(&mut packed, value.as_ref());
            count += 1;
        }
        Self { packed: packed.into(), count }
    }
}

/// The names only, because values may be confidential.
impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name.escape_ascii().to_string())).finish()
    }
}

fn pack(packed: &mut Vec<u8>, part: &[u8]) {
    varint(packed, part.len() as u64);
    packed.extend_from_slice(part);
}

fn unpack(packed: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0;
    for (index, byte) in packed.iter().enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return packed[index + 1..].split_at_checked(length);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peer_bug_repeated_headers_collapsed() {
        let given = [("Set", "1"), ("", ""), ("set", "2"), ("Set", "1")];
        let fields = Fields::from_iter(given);
        let kept: Vec<_> = fields.iter().collect();
        assert_eq!(kept, given.map(|(name, value)| (name.as_bytes(), value.as_bytes())));
        assert_eq!((fields.len(), fields.is_empty()), (4, false));
        assert_eq!((Fields::default().len(), Fields::default().is_empty()), (0, true));
    }

    #[test]
    fn long_values_keep_every_byte() {
        for length in [0, 1, 127, 128, 129, 16_383, 16_384, 70_000] {
            let value = vec![0xff; length];
            let fields = Fields::from_iter([(b"x".as_slice(), value.as_slice()), (b"y", b"z")]);
            let kept: Vec<_> = fields.iter().collect();
            assert_eq!(kept, [(b"x".as_slice(), value.as_slice()), (b"y", b"z")], "{length}");
        }
    }

    #[test]
    fn a_shared_part_is_not_a_copy() {
        let fields = Fields::from_iter([("etag", "\"7\"")]);
        let (_, value) = fields.iter().next().unwrap();
        assert_eq!(fields.share(value).as_ptr(), value.as_ptr());
    }

    #[test]
    fn debug_output_shows_names_and_no_values() {
        assert_eq!(format!("{:?}", Fields::from_iter([("x-token", "secret")])), "[\"x-token\"]");
    }
}
