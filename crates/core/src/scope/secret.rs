//! The secret that turns scopes and keys into ids.
//!
//! Contents: the keyed derivations, HMAC-SHA-256 over a label and unambiguous fields. Never here: making up a secret,
//! or keeping its bytes longer than it takes to prepare the hash.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::Scope;
use super::encoding::Sink;
use crate::id::{CallerHash, CommandId, KeyHash, SecretId};
use crate::key::Key;

/// The hashing secret, ready to use.
///
/// Anyone who knows it can test guesses at keys and callers against a store's hashes; anyone who does not can neither
/// do that nor forge an id. Every node on a store needs the same one: under another secret every key is new.
///
/// It holds a prepared hash state instead of the bytes, so that a derivation costs only its own input. The state is
/// worth as much as the secret; debug output shows neither.
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
    /// The fewest bytes of a secret: as many as the hash puts out.
    pub const MIN: usize = 32;

    /// Takes a secret of at least 32 bytes, which should be random.
    ///
    /// Whether they are cannot be told from here. As HMAC has it, a secret of under 64 bytes is the same as that
    /// secret with zero bytes behind it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SecretTooShort> {
        let error = SecretTooShort { length: bytes.len() };
        if bytes.len() < Self::MIN {
            return Err(error);
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| error)
    }

    /// What stores index by: 32 bytes that another scope or key does not give.
    pub fn command_id(&self, scope: &Scope, key: &Key) -> CommandId {
        CommandId::from_bytes(self.derive(b"semel command id v1", |out| {
            scope.encode(out);
            key.encode(out);
        }))
    }

    /// The key alone, whatever its scope: finds records by key without keeping keys.
    pub fn key_hash(&self, key: &Key) -> KeyHash {
        KeyHash::from_bytes(self.derive(b"semel key hash v1", |out| key.encode(out)))
    }

    /// Tenant and caller, whatever the operation: finds a caller's own records.
    pub fn caller_hash(&self, scope: &Scope) -> CallerHash {
        CallerHash::from_bytes(self.derive(b"semel caller hash v1", |out| scope.encode_caller(out)))
    }

    /// Which secret this is, for a store to remember. Says nothing about the secret itself.
    pub fn id(&self) -> SecretId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.derive(b"semel secret id v1", |_| ())[..16]);
        SecretId::from_bytes(id)
    }

    /// HMAC-SHA-256 over the label, as a field, and what `encode` writes. Labels keep the derivations apart.
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

/// The secret has too few bytes to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretTooShort {
    /// How many bytes it has.
    pub length: usize,
}

impl fmt::Display for SecretTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the hashing secret has {} bytes; it needs at least {} random ones",
            self.length,
            Secret::MIN
        )
    }
}

impl std::error::Error for SecretTooShort {}
