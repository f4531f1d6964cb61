//! The one write of a local command, and who is told once it is committed.

use super::judge::Marker;
use super::{LocalAttempt, LocalCommand};
use crate::answer::{Answer, Ran, Told};
use crate::observe::Event;
use crate::quota::Permit;
use crate::running::{Progress, Standing};
use crate::sealing::Seal;
use crate::telling;
use semel_core::classify::Ending;
use semel_core::id::CommandId;
use semel_core::machine::{self, Expect, Found, LocalEnding, Refusal, Unchanged, Write};
use semel_core::outcome::{Body, Outcome};
use semel_core::policy::Class;
use semel_core::store::Reading;
use std::sync::Arc;

/// What a local command's transaction writes at its end, all of it or nothing.
#[derive(Debug)]
pub struct LocalWrites {
    /// What is written under the old secret's id, before the record.
    pub marker: Option<MarkerWrite>,
    /// The id that the record stands under.
    pub id: CommandId,
    /// The record, and what must stand there until then.
    pub write: Write,
    ending: LocalEnding,
}

/// The marker of a command that moves to the new secret's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerWrite {
    /// Where it is planted.
    pub id: CommandId,
    /// The record that is removed there first.
    pub removes: Option<Unchanged>,
}

/// Why an ending cannot be written at this moment. The transaction is to be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritable {
    /// Others may have moved on to another secret since: look again, and run again.
    Stale,
    /// The clock is not trusted any more, so that an outcome cannot be dated.
    Clock,
    /// The machine does not allow it. This is a bug in Semel.
    Refused(Refusal),
}

impl LocalCommand {
    /// What is to be written at the end of the attempt's transaction. To be asked right before it is written, and committed
    /// within the [store's timeout](super::Patience::store_timeout): a change of the hashing secret waits that long for it.
    pub fn end(&self, attempt: &LocalAttempt, ending: LocalEnding) -> Result<LocalWrites, Unwritable> {
        let node = &self.node;
        let inserts = attempt.claim.expect == Expect::Absent;
        if inserts && !self.is_view_current() {
            return Err(Unwritable::Stale);
        }
        let sealed = match self.recognised.intent.seal {
            Seal::Off => ending.clone(),
            _ => mapped(ending.clone(), |outcome| node.sealed(attempt.id, outcome)),
        };
        let mut stamp = node.stamp(node.now().max(attempt.claim.next.created_at()), "");
        if let Some(who) = &self.recognised.intent.claimed_by {
            stamp.who = who;
        }
        let write = match machine::commit_local(&attempt.claim, sealed, stamp) {
            Ok(write) => write,
            Err(Refusal::ClockNotTrusted) => return Err(Unwritable::Clock),
            Err(refusal) => return Err(Unwritable::Refused(refusal)),
        };
        let marker = attempt.marker.map(|marker| match marker {
            Marker::Planted(id) => MarkerWrite { id, removes: None },
            Marker::Over(id, expect) => MarkerWrite { id, removes: Some(expect) },
        });
        Ok(LocalWrites { marker, id: attempt.id, write, ending })
    }

    /// The transaction has committed: tells everybody, and yields what the caller is told.
    pub fn committed(self, attempt: LocalAttempt, writes: LocalWrites) -> Answer {
        let node = &self.node;
        drop(attempt);
        let record = Arc::new(writes.write.next);
        let operation = record.operation();
        node.observe(&Event::Claimed { operation, attempt: record.attempt() });
        node.observe(&Event::Finished { operation, state: record.state_name() });
        node.cache.keep(writes.id, &record, node.clock.uptime());
        let stored = telling::stored(node, &record);
        self.place.show(Progress::Ended(Standing { id: writes.id, record: Arc::clone(&record) }));
        // Waiters of other nodes watch the id that they take the lock of.
        node.store.wake(self.arbiter());
        if writes.id != self.arbiter() {
            node.store.wake(writes.id);
        }
        let ending = match writes.ending {
            LocalEnding::Succeeded(outcome) => Ending::Succeeded(outcome),
            LocalEnding::Refused(outcome) => Ending::FailedReplayable(outcome),
        };
        let (attempt, repeatable) = (record.attempt(), record.policy().class == Class::Local);
        let ran = Ran { ending, stored: Some(stored), attempt, repeatable, local: () };
        let answer = Answer { operation_id: record.operation_id(), told: Told::Ran(ran) };
        self.answered(&answer);
        answer
    }

    /// Whether the store shows that these writes have been committed. That it does not is no proof of the opposite: a log may have
    /// them, and a crash bring them back.
    pub async fn has_landed(&self, writes: &LocalWrites) -> bool {
        let Ok(look) = self.look().await else { return false };
        let reading = if writes.id == self.arbiter() { Some(&look.arbiter) } else { look.moved_to.as_ref() };
        writes.landed(reading.map_or(Found::Nothing, Reading::found))
    }

    /// The attempt's transaction was rolled back, and nothing of it is left.
    pub fn rolled_back(&self, attempt: LocalAttempt) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::RolledBack { operation_id, operation });
        attempt.permit.into_iter().for_each(Permit::refund);
    }

    /// Nobody can tell whether the attempt's transaction has committed. A new key that it used up stays used up.
    pub fn commit_in_doubt(&self, attempt: &LocalAttempt) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::CommitInDoubt { operation_id, operation });
    }

    /// The transaction of the attempt was ended without it: dropped, or committed by its own work.
    pub fn unfinished(&self, attempt: &LocalAttempt, is_committed: bool) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::Unfinished { operation_id, operation, is_committed });
    }
}

impl LocalWrites {
    /// Whether what stands under [`id`](Self::id) says that they have been committed. Its token is proof: it was drawn for this
    /// transaction and is in no other.
    pub fn landed(&self, found: Found<'_>) -> bool {
        machine::claim_landed(&self.write, found).is_some()
    }
}

/// The same ending without the body of its outcome, which is too large for the store. `None` where it has none.
pub fn without_body(ending: LocalEnding) -> Option<LocalEnding> {
    let (LocalEnding::Succeeded(outcome) | LocalEnding::Refused(outcome)) = &ending;
    if outcome.body == Body::NotRetained {
        return None;
    }
    Some(mapped(ending, |outcome| Outcome { body: Body::NotRetained, ..outcome }))
}

fn mapped(ending: LocalEnding, map: impl FnOnce(Outcome) -> Outcome) -> LocalEnding {
    match ending {
        LocalEnding::Succeeded(outcome) => LocalEnding::Succeeded(map(outcome)),
        LocalEnding::Refused(outcome) => LocalEnding::Refused(map(outcome)),
    }
}
