//! What a node goes by while it works on one request.

use super::Error;
use semel_core::fingerprint;
use semel_core::fingerprint::Payload;
use semel_core::key::Key;
use semel_core::machine::{Command, Stage};
use semel_core::policy::Policy;
use semel_core::scope::{Scope, Secret};
use std::sync::Arc;
use std::time::Duration;

/// A secret, and how many this store had before it.
#[derive(Debug, Clone)]
pub struct Numbered {
    /// The secret.
    pub secret: Arc<Secret>,
    /// 0 for a store's first.
    pub generation: u32,
}

/// The secret that is being replaced, and how far that has come.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The old secret, whose ids arbitrate.
    pub old: Numbered,
    /// How far this node has come.
    pub stage: Stage,
}

/// What a node goes by while it works on one request: a snapshot, cheap to take, that is good for a short while only.
#[derive(Debug, Clone)]
pub struct View {
    /// The secret in use; while one is being replaced, the new one.
    pub current: Numbered,
    /// The one that is being replaced, if any.
    pub outgoing: Option<Outgoing>,
    pub(super) good_until: Duration,
}

impl View {
    /// Fails if this snapshot is too old to claim by at `uptime`: other nodes may have moved on.
    ///
    /// To be asked right before every insert. (Swaps need no view: the record that they expect is where it is.)
    pub fn check(&self, uptime: Duration) -> Result<(), Error> {
        if uptime < self.good_until { Ok(()) } else { Err(Error::Stale) }
    }

    /// The command that a request makes, under every secret in question. The payload is read once.
    pub fn commands<'a>(
        &self,
        scope: &Scope,
        key: &Key,
        policy: Arc<Policy>,
        payload: &'a dyn Payload,
    ) -> Result<Commands<'a>, fingerprint::Error> {
        let Numbered { secret, generation } = &self.current;
        let current = Command::new(secret, scope, key, policy, payload)?.with_generation(*generation);
        let under_old =
            |Outgoing { old, .. }: &Outgoing| current.under(&old.secret, old.generation, scope, key);
        let old = self.outgoing.as_ref().map(under_old);
        Ok(Commands { current, old })
    }
}

/// One command under every secret in question.
#[derive(Clone)]
pub struct Commands<'a> {
    /// Under the secret in use; while one is being replaced, under the new one.
    pub current: Command<'a>,
    /// Under the one that is being replaced, if any.
    pub old: Option<Command<'a>>,
}
