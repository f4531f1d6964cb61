//! Fingerprints.

mod selection;

pub use selection::Selection;

use std::fmt;

/// What a payload comes down to: 32 bytes that two requests share exactly when they ask for the same thing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Wraps 32 bytes read back from a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes that a record keeps.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "Fingerprint({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// Kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Malformed.
    Malformed,
    /// Unknown version.
    UnknownVersion,
}
/// Error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error(pub ErrorKind);
impl Error {
    /// Kind.
    pub fn kind(&self) -> ErrorKind {
        self.0
    }
}
/// Payload.
pub trait Payload {
    /// Fingerprint.
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error>;
}
impl Payload for Fingerprint {
    fn fingerprint(&self, _: &Selection) -> Result<Fingerprint, Error> {
        Ok(*self)
    }
}
