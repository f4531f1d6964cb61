//! The secret that turns scopes and keys into ids.
//!
//! The keyed derivations: HMAC-SHA-256 over a label and unambiguous fields. The bytes of a secret are dropped as soon
//! as the hash is prepared.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Scope;
use crate::encoding::Sink;
use crate::id::{CallerHash, CommandId, KeyHash, SecretId};
use crate::key::Key;

/// The hashing secret, ready to use.
///
/// With it, guesses of keys and callers can be tested against a store's hashes, and IDs can be forged; without it,
/// neither is possible. All nodes of a store need the same secret: under another one, every key is new.
///
/// It contains a prepared hash state instead of the bytes, so that a derivation hashes only its own input. The state
/// is as sensitive as the secret; debug output shows neither.
///
/// ```
/// use semel_core::scope::Secret;
///
/// let secret = Secret::from_bytes(b"an example; take 32 random bytes")?;
/// assert_eq!(format!("{secret:?}"), "Secret(…)");
/// assert!(Secret::from_bytes(b"short").is_err());
/// # Ok::<(), semel_core::scope::SecretTooShort>(())
/// ```
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// The minimum length in bytes: the output size of the hash.
    pub const MIN: usize = 32;

    /// Takes a secret of at least 32 bytes, which should be random.
    ///
    /// Randomness is not checked. In HMAC, a secret of less than 64 bytes equals the same secret padded with zero
    /// bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretTooShort> {
        let error = SecretTooShort { length: bytes.len() };
        if bytes.len() < Self::MIN {
            return Err(error);
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| error)
    }

    /// The ID under which stores index a command: 32 bytes, unique to this scope and key.
    pub fn command_id(&self, scope: &Scope, key: &Key) -> CommandId {
        CommandId::from_bytes(self.derive(b"semel command id v1", |out| {
            scope.encode(out);
            key.encode(out);
        }))
    }

    /// The hash of the key alone, in any scope: finds records by key without storing keys.
    pub fn key_hash(&self, key: &Key) -> KeyHash {
        KeyHash::from_bytes(self.derive(b"semel key hash v1", |out| key.encode(out)))
    }

    /// The hash of tenant and caller, for any operation: finds a caller's own records.
    pub fn caller_hash(&self, scope: &Scope) -> CallerHash {
        CallerHash::from_bytes(self.derive(b"semel caller hash v1", |out| scope.encode_caller(out)))
    }

    /// Identifies this secret in a store, without revealing it.
    pub fn id(&self) -> SecretId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.derive(b"semel secret id v1", |_| ())[..16]);
        SecretId::from_bytes(id)
    }

    /// HMAC-SHA-256 over the label, as a field, and what `encode` writes. The labels separate the derivations.
    fn derive(&self, label: &[u8], encode: impl FnOnce(&mut Hmac<Sha256>)) -> [u8; 32] {
        let mut mac = self.0.clone();
        mac.field(label);
        encode(&mut mac);
        mac.finalize().into_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The secret is too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretTooShort {
    /// How many bytes it has.
    pub length: usize,
}

impl fmt::Display for SecretTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the hashing secret has {} bytes; at least {} random bytes are required",
            self.length,
            Secret::MIN
        )
    }
}

impl std::error::Error for SecretTooShort {}
