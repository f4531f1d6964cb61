//! Bytes to hash that nothing else encodes to.
//!
//! What lives here: tags, counts and length-prefixed fields, written to a hash as they come.
//! What must never: a delimiter, or a field written without its length.

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Where encoded bytes go.
///
/// The methods are prefix codes: none of their outputs begins another one of the same method. A sequence of calls
/// whose next method depends only on what was written before can therefore be read back, and is unambiguous.
pub(crate) trait Sink {
    /// Takes the next bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// One byte that says which alternative follows.
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
