//! Commits without an answer.

use super::{DatabaseTimeouts, LocalCommand, LocalWrites, handover};
use crate::call::answer::Error;
use crate::call::finishing::Finishing;
use crate::observe::Call;
use semel_core::id::CommandId;
use semel_core::machine::Found;
use semel_core::store::{Reading, Store};
use std::sync::Arc;

/// A commit without an answer yet. If the waiter goes away or never gets an answer, the store knows that reads of the
/// command have to be [confirmed](DatabaseTimeouts::has_confirmed), and a layer that handed it over answers that it is in doubt.
#[must_use = "dropped, the commit counts as in doubt"]
pub struct Unanswered {
    store: Arc<dyn Store>,
    handover: Option<Arc<handover::Shared>>,
    ids: [Option<CommandId>; 2],
}

impl Unanswered {
    /// The database has answered.
    pub fn answered(mut self) {
        self.ids = [None; 2];
        self.handover = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.ids.into_iter().flatten().for_each(|id| self.store.doubt(id));
        if let Some(handover) = &self.handover {
            handover.in_doubt();
        }
    }
}

impl std::fmt::Debug for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unanswered").finish_non_exhaustive()
    }
}

impl LocalCommand {
    /// The transaction with these writes is about to be committed.
    pub fn committing(&self, writes: &LocalWrites) -> Unanswered {
        let ids = [Some(writes.id), writes.marker.map(|marker| marker.id)];
        let handover = self.handover.as_ref().map(|handover| Arc::clone(handover.shared()));
        Unanswered { store: Arc::clone(&self.node.store.raw), handover, ids }
    }

    /// The transaction is about to run on a thread that commits it even if nobody waits any more.
    pub fn running_elsewhere(&self) -> Unanswered {
        let handover = self.handover.as_ref().map(|handover| Arc::clone(handover.shared()));
        Unanswered { store: Arc::clone(&self.node.store.raw), handover, ids: [None; 2] }
    }
}

impl Finishing {
    /// The transaction with this ending is about to be committed.
    pub fn committing(&self) -> Unanswered {
        let ids = [Some(self.id()), None];
        Unanswered { store: Arc::clone(&self.ownership.node.store.raw), handover: None, ids }
    }
}

impl DatabaseTimeouts {
    /// The entry under `id`, read through the store.
    pub async fn read(&self, id: CommandId) -> Result<Reading, Error> {
        Ok(self.node.store.bounded(Call::Get, self.node.store.raw.get(id)).await?)
    }

    /// Whether everything that was committed on this timeline of the store's database before this call is durable, on
    /// a standby that commits wait for as well. Ask only if there is one: it costs a commit, which concurrent callers
    /// share.
    pub async fn has_confirmed_commits(&self, timeline: &str) -> bool {
        matches!(self.bounded(self.node.store.raw.confirm(timeline)).await, Some(Ok(())))
    }

    /// Whether an entry that was read under `id` before this call is known to be durable. `is_it` recognises the entry:
    /// the store may have been failed over to a server that lacks it.
    pub async fn has_confirmed(&self, id: CommandId, is_it: impl Fn(Found<'_>) -> bool) -> bool {
        !self.node.store.raw.is_in_doubt(id)
            || self.node.store.get(id).await.is_ok_and(|reading| is_it(reading.found()))
    }
}
