//! An unambiguous encoding of the bytes to hash.
//!
//! Tags, counts and length-prefixed fields, written to a hash as they come. There are no delimiters, and no field is
//! written without its length.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Where encoded bytes go.
///
/// The methods are prefix codes: no output of a method is a prefix of another one. So a sequence of calls can be read
/// back, and is unambiguous, if each call depends only on what was written before.
pub(crate) trait Sink {
    /// Takes the next bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// One byte for the alternative that follows.
    fn tag(&mut self, tag: u8) {
        self.put(&[tag]);
    }

    /// How many items follow: 8 bytes, most significant first.
    fn count(&mut self, count: usize) {
        self.put(&(count as u64).to_be_bytes());
    }

    /// A length in bytes, as a count, then the bytes.
    fn field(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.put(bytes);
    }

    /// Tag 0 for nothing; tag 1 and the field for something.
    fn option(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            None => self.tag(0),
            Some(bytes) => {
                self.tag(1);
                self.field(bytes);
            }
        }
    }
}

impl Sink for Sha256 {
    fn put(&mut self, bytes: &[u8]) {
        Digest::update(self, bytes);
    }
}

impl Sink for Hmac<Sha256> {
    fn put(&mut self, bytes: &[u8]) {
        Mac::update(self, bytes);
    }
}

#[cfg(test)]
impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::Sink as _;

    #[test]
    fn the_parts_are_written_as_the_vectors_describe() {
        let mut out = Vec::new();
        out.tag(7);
        out.count(258);
        out.field(b"ab");
        out.option(None);
        out.option(Some(b""));
        let expected = [
            &[7][..],
            &[0, 0, 0, 0, 0, 0, 1, 2],
            &[0, 0, 0, 0, 0, 0, 0, 2],
            b"ab",
            &[0],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(out, expected.concat());
    }
}
