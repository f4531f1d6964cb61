//! A caller's view of its own operations.
//!
//! It reveals nothing about records of other callers, not even that they exist.

use crate::call::engine::Engine;
use crate::call::found_record::FoundRecord;
use crate::operator::actions::OperatorError;
use semel_core::id::{CallerHash, OperationId};
use semel_core::key::Key;
use semel_core::machine;
use semel_core::outcome::Outcome;
use semel_core::record::{Record, State};
use semel_core::scope::{Scope, Secret};
use semel_core::store::{self, Kind};

/// An operation, as its caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallerOperation {
    /// The record.
    pub record: Record,
    /// The replayed outcome, unsealed; `None` if it is not final or has expired.
    pub outcome: Option<Outcome>,
    /// Whether the given key is the operation's key.
    pub is_key: bool,
    /// Whether the outcome has expired. `false` if the clock is not trusted.
    pub is_expired: bool,
}

impl Engine {
    /// The keyed hash of the caller of `scope`, to count a caller's requests without its name. `None` while this node
    /// has no secret.
    pub fn caller_hash(&self, scope: &Scope) -> Option<CallerHash> {
        let view = self.node.secrets.view().ok()?;
        Some(view.current.secret.caller_hash(scope))
    }

    /// The operation, if it belongs to the caller of `scope` (in any operation) and has not expired.
    ///
    /// [`OperatorError::NotFound`] if it belongs to another caller: nobody learns that it exists.
    pub async fn look_up_own(
        &self,
        operation_id: OperationId,
        scope: &Scope,
        key: Option<&Key>,
    ) -> Result<CallerOperation, OperatorError> {
        self.look_up_own_by(operation_id, key, |_| Some(scope.clone())).await
    }

    /// The same if the caller depends on the record's operation: `whose` returns the scope for that operation's name,
    /// or `None` if the requester cannot be its caller.
    pub async fn look_up_own_by(
        &self,
        operation_id: OperationId,
        key: Option<&Key>,
        whose: impl FnOnce(&str) -> Option<Scope>,
    ) -> Result<CallerOperation, OperatorError> {
        let FoundRecord { id, record, now } = self.look_up(operation_id).await?;
        let view = self.node.secrets.view();
        let view =
            view.map_err(|_| store::Error::new(Kind::Unavailable, "identifying the owner of an operation"))?;
        let mut secrets =
            std::iter::once(&view.current).chain(view.outgoing.as_ref().map(|outgoing| &outgoing.old));
        // Without the secret of the record's generation, the caller cannot be verified.
        let numbered = secrets.find(|numbered| numbered.generation == record.generation());
        let secret: &Secret = &numbered.ok_or(OperatorError::NotFound)?.secret;
        let is_expired = machine::is_expired(&record, now);
        let scope = whose(record.operation()).ok_or(OperatorError::NotFound)?;
        if machine::is_gone(&record, now) || secret.caller_hash(&scope) != record.caller_hash() {
            return Err(OperatorError::NotFound);
        }
        let is_key = key.is_some_and(|key| secret.key_hash(key) == record.key_hash());
        let outcome = match record.state() {
            State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } if !is_expired => {
                Some(self.node.sealing.open(id, operation_id, outcome))
            }
            _ => None,
        };
        Ok(CallerOperation { record, outcome, is_key, is_expired })
    }
}
