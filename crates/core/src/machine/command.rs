//! A request that has been recognised.

use crate::fingerprint::{Error, Fingerprint, Payload};
use crate::id::{CallerHash, CommandId, KeyHash, OperationId};
use crate::key::Key;
use crate::policy::Policy;
use crate::scope::{Scope, Secret};
use std::sync::Arc;

/// A request that has been recognised: who asks for what, under which key, with which payload.
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
    /// What stores index by.
    pub id: CommandId,
    /// The public name of the command.
    pub operation_id: OperationId,
    /// The keyed hash of its key.
    pub key_hash: KeyHash,
    /// The keyed hash of its caller.
    pub caller_hash: CallerHash,
    /// The operation's name.
    pub operation: Arc<str>,
    /// The terms that a new record would be claimed under.
    pub policy: Arc<Policy>,
    /// The payload's fingerprint under that policy's selection.
    pub fingerprint: Fingerprint,
    /// The payload itself, asked once more where the record was claimed under another selection.
    pub payload: &'a dyn Payload,
    /// Which hashing secret made the id: 0 for a store's first, one more for each that replaced it.
    pub generation: u32,
}

impl<'a> Command<'a> {
    /// Recognises a request. Fails where its payload cannot be fingerprinted under the policy's selection.
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

    /// The same command, its id made by the secret of this generation. Without it, by a store's first.
    #[must_use]
    pub fn with_generation(self, generation: u32) -> Self {
        Self { generation, ..self }
    }

    /// The same command as another secret names it, of that secret's generation: what a change of the hashing
    /// secret needs beside the first. The payload is not read again.
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
