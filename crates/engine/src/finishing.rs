//! The ending of an attempt that is stored in a transaction of the application's own.
//!
//! Contents: the pause of everything else that the owner would write, and the one write. Never here: SQL; the crate
//! `semel-tx` has the transactions, and is the only one meant to call this.

use crate::answer::Error;
use crate::attempt::Attempt;
use crate::local::Patience;
use crate::observe::Call;
use crate::ownership::Ownership;
use semel_core::classify::Ending;
use semel_core::id::{CommandId, OperationId};
use semel_core::machine::{self, Found, LocalEnding, Refusal, Write};
use semel_core::store::Reading;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;

/// An ending on its way into a transaction. While it is held the attempt's lease is not renewed, and nothing else of
/// the attempt is written. Dropped, the attempt is as it was: still owned, and free to try again.
pub struct Finishing {
    pub(crate) ownership: Arc<Ownership>,
    /// The ending, and the write that it comes to.
    judged: Option<(Ending, Write)>,
    _nothing_else: OwnedMutexGuard<()>,
}

/// Why an ending cannot be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotFinished {
    /// The record is no longer this attempt's, or is settled already.
    Overtaken,
    /// The clock is not trusted, so that it cannot be dated.
    Clock,
}

impl Attempt {
    /// Prepares to store how the attempt ended in a transaction, once nothing else of it is under way. What commits
    /// there is the attempt's ending, whatever the work returns afterwards.
    pub async fn finishing(&self) -> Finishing {
        let ownership = Arc::clone(&self.ownership);
        let nothing_else = Arc::clone(&ownership.writing).lock_owned().await;
        Finishing { ownership, judged: None, _nothing_else: nothing_else }
    }
}

impl Finishing {
    /// The id that the record is under.
    pub fn id(&self) -> CommandId {
        self.ownership.id
    }

    /// The public name of the command.
    pub fn operation_id(&self) -> OperationId {
        self.ownership.record().operation_id()
    }

    /// How long the database is waited for.
    pub fn patience(&self) -> Patience {
        Patience::of(&self.ownership.node)
    }

    /// Reads the record by the store itself, for a database in which the last write alone decides and nobody takes a
    /// lock. With the uptime of the question.
    pub async fn look(&self) -> Result<(Reading, Duration), Error> {
        let (node, id) = (&self.ownership.node, self.ownership.id);
        let asked = node.clock.uptime();
        // As the store has it: its time is taken note of when this is judged.
        let reading = node.bounded(Call::Get, node.store.get(id)).await?;
        Ok((reading, asked))
    }

    /// What is to be written for this ending, given what was read in the transaction by a question that was put at
    /// the uptime `asked`.
    pub fn judge(
        &mut self,
        ending: LocalEnding,
        reading: &Reading,
        asked: Duration,
    ) -> Result<&Write, NotFinished> {
        let (node, token) = (&self.ownership.node, self.ownership.token);
        let mut now = reading.now;
        node.date(&mut now, asked);
        let record = reading.record().ok_or(NotFinished::Overtaken)?;
        let ending = match ending {
            LocalEnding::Succeeded(outcome) => Ending::Succeeded(outcome),
            LocalEnding::Refused(outcome) => Ending::FailedReplayable(outcome),
        };
        let kept = node.sealed_ending(&self.ownership, ending.clone());
        let why = "stored in the application's transaction";
        match machine::finish(record, token, kept, node.stamp(now, why)) {
            Ok(write) => Ok(&self.judged.insert((ending, write)).1),
            Err(Refusal::ClockNotTrusted) => Err(NotFinished::Clock),
            Err(_) => Err(NotFinished::Overtaken),
        }
    }

    /// Whether what is stored there says that the write has been committed.
    pub fn landed(&self, found: Found<'_>) -> bool {
        self.judged.as_ref().is_some_and(|(_, write)| machine::landed(write, found))
    }

    /// Whether the store shows that the write has been committed. That it does not is no proof of the opposite.
    pub async fn has_landed(&self) -> bool {
        self.look().await.is_ok_and(|(reading, _)| self.landed(reading.found()))
    }

    /// The transaction has committed. Nothing may be sent under the attempt any more.
    pub fn committed(mut self) {
        if let Some((ending, write)) = self.judged.take() {
            self.ownership.node.store.wake(self.ownership.id);
            self.ownership.ended_elsewhere(ending, write.next);
        }
    }
}

impl fmt::Debug for Finishing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finishing").field("operation_id", &self.operation_id()).finish_non_exhaustive()
    }
}
