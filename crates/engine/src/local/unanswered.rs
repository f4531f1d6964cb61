//! Commits without an answer.

use super::{LocalCommand, LocalWrites, Patience};
use crate::answer::Error;
use crate::finishing::Finishing;
use crate::observe::Call;
use semel_core::id::CommandId;
use semel_core::store::{Reading, Store};
use std::sync::Arc;

/// A commit without an answer yet. If the waiter goes away or never gets an answer, the store knows that reads of the
/// command have to be [confirmed](Patience::has_confirmed).
#[must_use = "dropped, the commit counts as in doubt"]
pub struct Unanswered {
    store: Arc<dyn Store>,
    ids: [Option<CommandId>; 2],
}

impl Unanswered {
    /// The database has answered.
    pub fn answered(mut self) {
        self.ids = [None; 2];
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.ids.into_iter().flatten().for_each(|id| self.store.doubt(id));
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
        Unanswered { store: Arc::clone(&self.node.store), ids }
    }
}

impl Finishing {
    /// The transaction with this ending is about to be committed.
    pub fn committing(&self) -> Unanswered {
        let ids = [Some(self.id()), None];
        Unanswered { store: Arc::clone(&self.ownership.node.store), ids }
    }
}

impl Patience {
    /// The entry under `id`, read through the store.
    pub async fn read(&self, id: CommandId) -> Result<Reading, Error> {
        Ok(self.node.bounded(Call::Get, self.node.store.get(id)).await?)
    }

    /// Whether an entry that was read under `id` before this call is known to be durable.
    pub async fn has_confirmed(&self, id: CommandId) -> bool {
        !self.node.store.is_in_doubt(id) || self.node.get(id).await.is_ok()
    }
}
