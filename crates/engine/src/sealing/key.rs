//! One sealing key and its name.

use chacha20poly1305::aead::Aead;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use std::fmt;

/// A key that seals outcomes: 32 random bytes, and a name that is stored unencrypted with each sealed outcome.
///
/// The bytes are wiped when the key is dropped. Debug output shows the name only.
#[derive(Clone)]
pub struct SealingKey {
    name: String,
    cipher: XChaCha20Poly1305,
}

impl SealingKey {
    /// How many bytes a key has.
    pub const BYTES: usize = 32;
    /// The longest name.
    pub const NAME_MAX: usize = 32;

    /// A key of exactly 32 bytes, which should be random, under a name of 1 to 32 letters, digits, `.` `_` and `-`.
    /// The name is not secret. Never reuse it for other bytes.
    pub fn new(name: &str, bytes: &[u8]) -> Result<Self, KeyError> {
        let fair = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > Self::NAME_MAX || !name.bytes().all(fair) {
            return Err(KeyError::Name);
        }
        let cipher = XChaCha20Poly1305::new_from_slice(bytes).map_err(|_| KeyError::Length(bytes.len()))?;
        Ok(Self { name: name.to_owned(), cipher })
    }

    /// The name, which is stored with each sealed outcome.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn cipher(&self) -> &XChaCha20Poly1305 {
        &self.cipher
    }
}

/// Equal names and equal bytes. The bytes are not accessible, so both keys authenticate an empty message under a
/// nonce that seals nothing else, and the tags are compared.
impl PartialEq for SealingKey {
    fn eq(&self, other: &Self) -> bool {
        let tag = |key: &Self| key.cipher.encrypt(&XNonce::default(), &[][..]).ok();
        self.name == other.name && tag(self) == tag(other)
    }
}

impl Eq for SealingKey {}

impl fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealingKey({})", self.name)
    }
}

/// Why a sealing key is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyError {
    /// The name is empty, too long, or has characters other than letters, digits, `.` `_` and `-`.
    Name,
    /// The key has this many bytes instead of 32.
    Length(usize),
    /// Two keys have this name.
    NameTaken(String),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => write!(
                f,
                "invalid name of a sealing key; expected 1 to {} letters, digits, dots, underscores and hyphens",
                SealingKey::NAME_MAX
            ),
            Self::Length(length) => {
                write!(
                    f,
                    "the sealing key has {length} bytes; exactly {} random bytes are required",
                    SealingKey::BYTES
                )
            }
            Self::NameTaken(name) => {
                write!(f, "two sealing keys are called `{name}`; each key needs its own name")
            }
        }
    }
}

impl std::error::Error for KeyError {}
