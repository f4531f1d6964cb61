//! Identifiers and keyed hashes, as plain bytes.
//!
//! The IDs of a command, an operation, a key and a caller, and their text forms. [`scope`](crate::scope) derives them.
//! Raw keys and callers are never here.

use std::fmt;
use std::str::FromStr;

macro_rules! digest {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Wraps 32 bytes read back from a store.
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes that a store keeps.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// All 64 hexadecimal digits, for a query or an API. Deliberately not `Display`, so that no log line
            /// shows a complete ID by accident.
            pub fn to_hex(&self) -> String {
                hex::encode(self.0)
            }

            /// The first eight hexadecimal digits: all that a log line or a metric may show.
            pub fn prefix(&self) -> String {
                hex::encode(&self.0[..4])
            }
        }

        /// The type and the [`prefix`](Self::prefix) only, so debug output is safe to log.
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}…)"), self.prefix())
            }
        }
    };
}

digest! {
    /// What stores index by: the keyed hash of a scope and a key.
    CommandId
}
digest! {
    /// The keyed hash of a key alone. Finds records by key without storing the key.
    KeyHash
}
digest! {
    /// The keyed hash of a caller within its tenant. Finds a caller's records.
    CallerHash
}

/// Identifies the secret that made a hash, without revealing it: 16 bytes that a store can keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretId([u8; 16]);

impl SecretId {
    /// Wraps 16 bytes read back from a store.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes that a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// All 32 hexadecimal digits. They reveal nothing about the secret.
impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretId({self})")
    }
}

/// The ID of a resource that an operation creates: a UUID, the same on every attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId(uuid::Uuid);

impl ResourceId {
    /// Wraps the 16 bytes of a UUID.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes))
    }

    /// The 16 bytes of the UUID.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ResourceId({self})")
    }
}

/// The public name of one command: a UUID that is the same on every attempt and every replay.
///
/// Safe to show, to pass downstream, and to derive event IDs and resource IDs from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperationId(uuid::Uuid);

impl OperationId {
    /// Wraps 16 bytes read back from a store.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(uuid::Uuid::from_bytes(bytes))
    }

    /// The 16 bytes that a store keeps.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.as_hyphenated(), f)
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperationId({self})")
    }
}

/// The text was not a UUID in its usual hyphenated form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseOperationIdError;

impl fmt::Display for ParseOperationIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an operation ID; expected a UUID such as 0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35")
    }
}

impl std::error::Error for ParseOperationIdError {}

impl FromStr for OperationId {
    type Err = ParseOperationIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Hyphenated only, in either case: one operation ID has one text form, apart from letter case.
        if text.len() != 36 {
            return Err(ParseOperationIdError);
        }
        uuid::Uuid::try_parse(text).map(Self).map_err(|_| ParseOperationIdError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_shows_only_a_prefix_of_an_id() {
        let id = CommandId::from_bytes([0xab; 32]);
        assert_eq!(format!("{id:?}"), "CommandId(abababab…)");
        assert_eq!(id.to_hex(), "ab".repeat(32));
        assert_eq!(id.as_bytes(), &[0xab; 32]);
    }

    #[test]
    fn secret_and_resource_ids_are_written_in_full() {
        let secret = SecretId::from_bytes(*b"0123456789abcdef");
        assert_eq!(secret.as_bytes(), b"0123456789abcdef");
        assert_eq!(format!("{secret:?}"), "SecretId(30313233343536373839616263646566)");
        let resource = ResourceId::from_bytes(*b"0123456789abcdef");
        assert_eq!(resource.as_bytes(), b"0123456789abcdef");
        assert_eq!(format!("{resource:?}"), "ResourceId(30313233-3435-3637-3839-616263646566)");
    }

    #[test]
    fn an_operation_id_has_exactly_one_text_form() {
        let id = OperationId::from_bytes(*b"0123456789abcdef");
        assert_eq!(id.to_string(), "30313233-3435-3637-3839-616263646566");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(format!("{id:?}"), "OperationId(30313233-3435-3637-3839-616263646566)");
        for bad in ["", "30313233343536373839616263646566", "{30313233-3435-3637-3839-616263646566}", "x"] {
            assert_eq!(bad.parse::<OperationId>(), Err(ParseOperationIdError), "{bad}");
        }
    }
}
