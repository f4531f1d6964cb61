//! IDs derived from a command ID: of the operation, its events and its resources.
//!
//! The unkeyed, one-way derivations. They are equal for all attempts of one command.

use std::fmt;

use sha2::{Digest, Sha256};
use uuid::Builder;

use crate::encoding::Sink;
use crate::id::{CommandId, OperationId, ResourceId};

impl OperationId {
    /// The public id of a command: a UUID of version 8 out of SHA-256, the same on every attempt and replay.
    ///
    /// Needs no secret, so it can be checked against a record's command ID. The command ID cannot be computed from
    /// it.
    pub fn of(command: &CommandId) -> Self {
        Self::from_bytes(uuid_v8(b"semel operation id v1", &[command.as_bytes()]))
    }

    /// The id of an event that this operation emits: `{operation_id}:{name}`.
    ///
    /// Receivers drop an event they have seen, so give each event of an operation its own name: 1 to 128 letters,
    /// digits, `.`, `_` and `-`. So an event ID is also a valid key.
    ///
    /// ```
    /// use semel_core::id::OperationId;
    ///
    /// let operation: OperationId = "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35".parse().unwrap();
    /// let event = operation.event_id("payment.captured")?;
    /// assert_eq!(event.as_str(), "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35:payment.captured");
    /// assert!(operation.event_id("").is_err());
    /// # Ok::<(), semel_core::scope::NameError>(())
    /// ```
    pub fn event_id(&self, name: &str) -> Result<EventId, NameError> {
        let fair = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > EventId::NAME_MAX || !name.bytes().all(fair) {
            return Err(NameError);
        }
        Ok(EventId(format!("{self}:{name}")))
    }

    /// The id of a resource that this operation creates: a UUID of version 8 out of SHA-256.
    ///
    /// If you create the resource under this ID, a second attempt finds the first one's row. `name` distinguishes
    /// resources of one `kind`: a line number, a client's item ID; any text, also the empty one.
    ///
    /// ```
    /// use semel_core::id::OperationId;
    ///
    /// let operation: OperationId = "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35".parse().unwrap();
    /// assert_eq!(operation.resource_id("invoice", "1"), operation.resource_id("invoice", "1"));
    /// assert_ne!(operation.resource_id("invoice", "1"), operation.resource_id("invoice", "2"));
    /// ```
    pub fn resource_id(&self, kind: &str, name: &str) -> ResourceId {
        let fields = [self.as_bytes().as_slice(), kind.as_bytes(), name.as_bytes()];
        ResourceId::from_bytes(uuid_v8(b"semel resource id v1", &fields))
    }
}

/// The first 16 bytes of SHA-256 over label and fields, six bits overwritten by version and variant.
fn uuid_v8(label: &[u8], fields: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.field(label);
    for field in fields {
        hash.field(field);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(bytes).into_uuid().into_bytes()
}

/// The id of one event of one operation; see [`OperationId::event_id`]. Public, like the operation id in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventId(String);

impl EventId {
    /// The most characters in an event's name.
    pub const NAME_MAX: usize = 128;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not a valid event name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameError;

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not a valid event name; expected 1 to {} letters, digits, dots, underscores and hyphens",
            EventId::NAME_MAX
        )
    }
}

impl std::error::Error for NameError {}
