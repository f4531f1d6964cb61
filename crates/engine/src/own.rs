//! What callers may see of their own operations.
//!
//! Contents: a look at one record, for the caller that it belongs to. Never here: a word about anybody else's, not
//! even that it exists.

use crate::engine::Engine;
use crate::operator::{Looked, NotDone};
use semel_core::id::{CallerHash, OperationId};
use semel_core::key::Key;
use semel_core::machine;
use semel_core::outcome::Outcome;
use semel_core::record::{Record, State};
use semel_core::scope::{Scope, Secret};
use semel_core::store::{self, Kind};

/// An operation, as the caller that it belongs to sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// The record.
    pub record: Record,
    /// What is replayed, opened where it was sealed; none if there is nothing final, or it is past its time.
    pub outcome: Option<Outcome>,
    /// Whether the key that was brought along is the operation's.
    pub is_key: bool,
    /// Whether the outcome is past its time. Never by a clock that is not trusted.
    pub is_expired: bool,
}

impl Engine {
    /// The keyed hash that records know the caller of `scope` by: for counting what one caller does without naming
    /// it. `None` while this node has no secret to hash by.
    pub fn caller_hash(&self, scope: &Scope) -> Option<CallerHash> {
        let view = self.node.secrets.view().ok()?;
        Some(view.current.secret.caller_hash(scope))
    }

    /// The operation, if it is the caller's in `scope` (whatever operation that names), and not past its time.
    ///
    /// [`NotDone::NotFound`] where it is another's: nobody learns that it exists.
    pub async fn look_up_own(
        &self,
        operation_id: OperationId,
        scope: &Scope,
        key: Option<&Key>,
    ) -> Result<Own, NotDone> {
        self.look_up_own_by(operation_id, key, |_| Some(scope.clone())).await
    }

    /// The same, where it depends on the record's operation who is asking: `whose` tells the scope from that
    /// operation's name, or that it is nobody's who could ask.
    pub async fn look_up_own_by(
        &self,
        operation_id: OperationId,
        key: Option<&Key>,
        whose: impl FnOnce(&str) -> Option<Scope>,
    ) -> Result<Own, NotDone> {
        let Looked { id, record, now } = self.look_up(operation_id).await?;
        let view = self.node.secrets.view();
        let view = view.map_err(|_| store::Error::new(Kind::Unavailable, "telling whose operation it is"))?;
        let mut secrets =
            std::iter::once(&view.current).chain(view.outgoing.as_ref().map(|outgoing| &outgoing.old));
        // Of a generation that this node no longer knows nobody can prove to be the caller.
        let numbered = secrets.find(|numbered| numbered.generation == record.generation());
        let secret: &Secret = &numbered.ok_or(NotDone::NotFound)?.secret;
        let is_expired = machine::is_expired(&record, now);
        let scope = whose(record.operation()).ok_or(NotDone::NotFound)?;
        if machine::is_gone(&record, now) || secret.caller_hash(&scope) != record.caller_hash() {
            return Err(NotDone::NotFound);
        }
        let is_key = key.is_some_and(|key| secret.key_hash(key) == record.key_hash());
        let outcome = match record.state() {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } if !is_expired => {
                Some(self.node.opened(id, operation_id, outcome))
            }
            _ => None,
        };
        Ok(Own { record, outcome, is_key, is_expired })
    }
}
