//! A node's view of the secrets during one request.

use super::Error;
use semel_core::fingerprint;
use semel_core::fingerprint::Payload;
use semel_core::key::Key;
use semel_core::machine::{Command, Stage};
use semel_core::policy::Policy;
use semel_core::scope::{Scope, Secret};
use std::sync::Arc;
use std::time::Duration;

/// A secret and its generation.
#[derive(Debug, Clone)]
pub struct NumberedSecret {
    /// The secret.
    pub secret: Arc<Secret>,
    /// 0 for a store's first secret.
    pub generation: u32,
}

/// The secret that is being replaced, and the stage of the rotation.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The old secret, whose IDs decide.
    pub old: NumberedSecret,
    /// The stage of this node.
    pub stage: Stage,
}

/// A node's view of the secrets during one request: a cheap snapshot that is valid only for a short time.
#[derive(Debug, Clone)]
pub struct View {
    /// The current secret; during a rotation, the new one.
    pub current: NumberedSecret,
    /// The secret that is being replaced, if any.
    pub outgoing: Option<Outgoing>,
    pub(super) good_until: Duration,
}

impl View {
    /// Fails if this snapshot is too old for a claim at `uptime`: other nodes may have moved on.
    ///
    /// Call it right before every insert. (Swaps need no view: they expect an existing record.)
    pub fn check(&self, uptime: Duration) -> Result<(), Error> {
        if uptime < self.good_until { Ok(()) } else { Err(Error::Stale) }
    }

    /// The command of a request, under every relevant secret. The payload is read once.
    pub fn commands<'a>(
        &self,
        scope: &Scope,
        key: &Key,
        policy: Arc<Policy>,
        payload: &'a dyn Payload,
    ) -> Result<Commands<'a>, fingerprint::Error> {
        let NumberedSecret { secret, generation } = &self.current;
        let current = Command::new(secret, scope, key, policy, payload)?.with_generation(*generation);
        let under_old =
            |Outgoing { old, .. }: &Outgoing| current.under(&old.secret, old.generation, scope, key);
        let old = self.outgoing.as_ref().map(under_old);
        Ok(Commands { current, old })
    }
}

/// One command under every relevant secret.
#[derive(Clone)]
pub struct Commands<'a> {
    /// Under the current secret; during a rotation, under the new one.
    pub current: Command<'a>,
    /// Under the secret that is being replaced, if any.
    pub old: Option<Command<'a>>,
}
