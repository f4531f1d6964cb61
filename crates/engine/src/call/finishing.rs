//! Storing the ending of an attempt in the application's own transaction.
//!
//! Pauses the owner's other writes and makes the one write. Only the crate `semel-tx`, which has the transactions,
//! should call this.

use crate::call::answer::Error;
use crate::call::attempt::Attempt;
use crate::call::local::DatabaseTimeouts;
use crate::node::ownership::Ownership;
use crate::observe::Call;
use semel_core::classify::Ending;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{self, Found, LocalEnding, Refusal, Write, WriteResult};
use semel_core::store::Reading;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// An ending on its way into a transaction. While it exists, the lease is not renewed and nothing else of the attempt
/// is written. After a drop, the attempt is unchanged: still owned, and you can try again.
pub struct Finishing {
    pub(crate) ownership: Arc<Ownership>,
    /// The ending and its write.
    judged: Option<(Ending, Write)>,
    _nothing_else: OwnedMutexGuard<()>,
}

/// Why an ending cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFinished {
    /// The record no longer belongs to this attempt, or is already resolved.
    Overtaken,
    /// The clock is not trusted, so the ending cannot be dated.
    Clock,
}

impl Attempt {
    /// Prepares to store the attempt's ending in a transaction, after its other writes are done. What commits there
    /// is the attempt's ending, whatever the work returns afterwards.
    pub async fn finishing(&self) -> Finishing {
        let ownership = Arc::clone(&self.ownership);
        let nothing_else = Arc::clone(&ownership.writing).lock_owned().await;
        Finishing { ownership, judged: None, _nothing_else: nothing_else }
    }
}

impl Finishing {
    /// The command ID.
    pub fn id(&self) -> CommandId {
        self.ownership.id
    }

    /// The operation ID.
    pub fn operation_id(&self) -> OperationId {
        self.ownership.record().operation_id()
    }

    /// How long to wait for the database.
    pub fn timeouts(&self) -> DatabaseTimeouts {
        DatabaseTimeouts::of(&self.ownership.node)
    }

    /// Reads the record through the store, for databases without locks, where only the last write decides. Also
    /// returns the uptime at the start of the call.
    pub async fn look(&self) -> Result<(Reading, Duration), Error> {
        let (node, id) = (&self.ownership.node, self.ownership.id);
        let asked = node.clock.uptime();
        // Without adjusting the time: that happens when the reading is judged.
        let reading = node.store.bounded(Call::Get, node.store.raw.get(id)).await?;
        Ok((reading, asked))
    }

    /// The write for this ending, given a reading in the transaction that began at the uptime `asked`.
    pub fn judge(
        &mut self,
        ending: LocalEnding,
        reading: &Reading,
        asked: Duration,
    ) -> Result<&Write, NotFinished> {
        let (node, token) = (&self.ownership.node, self.ownership.token);
        let mut now = reading.now;
        node.store.date(&mut now, asked);
        let record = reading.record().ok_or(NotFinished::Overtaken)?;
        let ending = match ending {
            LocalEnding::Succeeded(outcome) => Ending::Succeeded(outcome),
            LocalEnding::Refused(outcome) => Ending::FailedReplayable(outcome),
        };
        let kept = node.sealing.seal_ending(self.ownership.id, self.ownership.seal, ending.clone());
        let why = "stored in the application's transaction";
        match machine::finish(record, token, kept, node.stamp(now, why)) {
            Ok(write) => Ok(&self.judged.insert((ending, write)).1),
            Err(Refusal::ClockNotTrusted) => Err(NotFinished::Clock),
            Err(_) => Err(NotFinished::Overtaken),
        }
    }

    /// Whether the stored entry shows that the write has committed.
    pub fn write_result(&self, found: Found<'_>) -> WriteResult {
        self.judged.as_ref().map_or(WriteResult::NotApplied, |(_, write)| machine::write_result(write, found))
    }

    /// Whether the store shows that the write has committed. `false` does not prove the opposite.
    pub async fn was_applied(&self) -> bool {
        self.look().await.is_ok_and(|(reading, _)| self.write_result(reading.found()) == WriteResult::Applied)
    }

    /// The transaction has committed. The attempt may send nothing any more.
    pub fn committed(mut self) {
        if let Some((ending, write)) = self.judged.take() {
            self.ownership.node.store.raw.wake(self.ownership.id);
            self.ownership.ended_elsewhere(ending, write.next);
        }
    }
}

impl fmt::Debug for Finishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finishing").field("operation_id", &self.operation_id()).finish_non_exhaustive()
    }
}
