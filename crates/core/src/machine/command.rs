//! A recognised request.

use crate::fingerprint::{Error, Fingerprint, Payload};
use crate::id::{CallerHash, CommandId, KeyHash, OperationId};
use crate::key::Key;
use crate::policy::Policy;
use crate::scope::{Scope, Secret};
use std::sync::Arc;

/// A recognised request: caller, operation, key and payload.
///
/// ```
/// use semel_core::fingerprint::{Limits, Request};
/// use semel_core::id::OperationId;
/// use semel_core::key::Key;
/// use semel_core::machine::Command;
/// use semel_core::policy::{Class, Policy};
/// use semel_core::scope::{Identity, Operation, Scope, Secret};
///
/// let secret = Secret::from_bytes(b"an example; take 32 random bytes")?;
/// let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
/// let key = Key::from_source("order-1234-charge").unwrap();
/// let request = Request::new("POST", "POST /charges", "/charges", b"amount=5");
///
/// let policy = Policy::new(Class::External).into();
/// let payload = (request, Limits::default());
/// let command = Command::new(&secret, &scope, &key, policy, &payload)?;
/// assert_eq!(command.operation_id, OperationId::of(&command.id));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Command<'a> {
    /// The ID under which stores index the command.
    pub id: CommandId,
    /// The public name of the command.
    pub operation_id: OperationId,
    /// The keyed hash of its key.
    pub key_hash: KeyHash,
    /// The keyed hash of its caller.
    pub caller_hash: CallerHash,
    /// The operation's name.
    pub operation: Arc<str>,
    /// The policy for a new record.
    pub policy: Arc<Policy>,
    /// The payload's fingerprint under that policy's selection.
    pub fingerprint: Fingerprint,
    /// The payload, which is fingerprinted again if the record was claimed under another selection.
    pub payload: &'a dyn Payload,
    /// The generation of the hashing secret that made the ID: 0 for a store's first secret, one more for each
    /// replacement.
    pub generation: u32,
}

impl<'a> Command<'a> {
    /// Recognises a request. Fails if its payload cannot be fingerprinted with the policy's selection.
    pub fn new(
        secret: &Secret,
        scope: &Scope,
        key: &Key,
        policy: Arc<Policy>,
        payload: &'a dyn Payload,
    ) -> Result<Self, Error> {
        let fingerprint = payload.fingerprint(&policy.selection)?;
        let id = secret.command_id(scope, key);
        Ok(Self {
            id,
            operation_id: OperationId::of(&id),
            key_hash: secret.key_hash(key),
            caller_hash: secret.caller_hash(scope),
            operation: scope.operation().text(),
            policy,
            fingerprint,
            payload,
            generation: 0,
        })
    }

    /// The same command with the generation of the secret that made its ID. The default is 0, a store's first secret.
    #[must_use]
    pub fn with_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// The same command with the IDs of another secret, for a rotation of the hashing secret. The payload is not read
    /// again.
    #[must_use]
    pub fn under(&self, secret: &Secret, generation: u32, scope: &Scope, key: &Key) -> Self {
        let id = secret.command_id(scope, key);
        Self {
            id,
            operation_id: OperationId::of(&id),
            key_hash: secret.key_hash(key),
            caller_hash: secret.caller_hash(scope),
            generation,
            ..self.clone()
        }
    }
}
