//! The one write of a local command, and the notifications after its commit.

use super::judge::Marker;
use super::{LocalAttempt, LocalCommand};
use crate::call::answer::{ExecuteResponse, RanAttempt, RequestOutcome};
use crate::call::reply;
use crate::node::running::{Progress, StoredRecord};
use crate::observe::Event;
use crate::quota::Permit;
use crate::sealing::Seal;
use semel_core::classify::Ending;
use semel_core::id::CommandId;
use semel_core::machine::{self, Expect, Found, LocalEnding, Refusal, Unchanged, Write, WriteResult};
use semel_core::outcome::{Body, Outcome};
use semel_core::policy::Class;
use semel_core::store::Reading;
use std::sync::Arc;
use std::time::Duration;

/// What a local command's transaction writes at its end.
#[derive(Debug)]
pub struct LocalWrites {
    /// The marker under the old secret's ID, written before the record.
    pub marker: Option<MarkerWrite>,
    /// The command ID.
    pub id: CommandId,
    /// The record and its condition.
    pub write: Write,
    ending: LocalEnding,
    /// The uptime before they were written.
    since: Duration,
}

/// The marker of a command that moves to the new secret's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkerWrite {
    /// The ID of the marker.
    pub id: CommandId,
    /// The record that is removed there first.
    pub removes: Option<Unchanged>,
}

/// Why an ending cannot be written now. Roll the transaction back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unwritable {
    /// Others may have moved on to another secret: read again, and run again.
    Stale,
    /// The clock is no longer trusted, so the outcome cannot be dated.
    Clock,
    /// The machine does not allow it. This is a bug in Semel.
    Refused(Refusal),
}

impl LocalCommand {
    /// The writes at the end of the attempt's transaction. Call this right before writing, and commit within the
    /// [store's timeout](super::DatabaseTimeouts::store_timeout): a rotation of the hashing secret waits that long.
    pub fn end(&self, attempt: &LocalAttempt, ending: LocalEnding) -> Result<LocalWrites, Unwritable> {
        let node = &self.node;
        let since = node.clock.uptime();
        let inserts = attempt.claim.expect == Expect::Absent;
        if inserts && !self.is_view_current() {
            return Err(Unwritable::Stale);
        }
        let sealed = match self.recognised.intent.seal {
            Seal::Off => ending.clone(),
            _ => mapped(ending.clone(), |outcome| node.sealing.seal(attempt.id, outcome)),
        };
        let mut stamp = node.stamp(node.clock.now().max(attempt.claim.next.created_at()), "");
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
        Ok(LocalWrites { marker, id: attempt.id, write, ending, since })
    }

    /// The transaction has committed: notifies waiters, and returns the answer to the caller.
    pub fn committed(self, attempt: LocalAttempt, writes: LocalWrites) -> ExecuteResponse {
        let node = &self.node;
        drop(attempt);
        let record = Arc::new(writes.write.next);
        let operation = record.operation();
        node.observe(&Event::Claimed { operation, attempt: record.attempt() });
        node.observe(&Event::Finished { operation, state: record.state_name() });
        node.cache.keep(writes.id, &record, writes.since);
        let stored = StoredRecord { id: writes.id, record: Arc::clone(&record) };
        self.running_entry.show(Progress::Ended { stored, since: writes.since });
        // Waiters of other nodes watch the ID whose lock they take.
        node.store.raw.wake(self.arbiter());
        if writes.id != self.arbiter() {
            node.store.raw.wake(writes.id);
        }
        let ending = match writes.ending {
            LocalEnding::Succeeded(outcome) => Ending::Succeeded(outcome),
            LocalEnding::Refused(outcome) => Ending::FailedReplayable(outcome),
        };
        let (attempt, repeatable) = (record.attempt(), record.policy().class == Class::Local);
        let ran = RanAttempt {
            ending,
            stored: Some(reply::stored(&node.clock, &record)),
            attempt,
            repeatable,
            local: (),
        };
        let answer =
            ExecuteResponse { operation_id: record.operation_id(), outcome: RequestOutcome::Ran(ran) };
        self.answered(&answer);
        answer
    }

    /// Whether the store shows that these writes have committed. `false` does not prove the opposite: after a crash,
    /// a log may bring them back.
    pub async fn was_applied(&self, writes: &LocalWrites) -> bool {
        let Ok(look) = self.look().await else { return false };
        let reading = if writes.id == self.arbiter() { Some(&look.arbiter) } else { look.moved_to.as_ref() };
        self.write_result(writes, reading.map_or(Found::Nothing, Reading::found)) == WriteResult::Applied
    }

    /// What the entry under the [ID of these writes](LocalWrites::id), read now, shows of their commit.
    pub fn write_result(&self, writes: &LocalWrites, found: Found<'_>) -> WriteResult {
        machine::local_write_result(&writes.write, found, self.node.clock.now_at_the_latest())
    }

    /// The attempt's transaction was rolled back.
    pub fn rolled_back(&self, attempt: LocalAttempt) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::RolledBack { operation_id, operation });
        if let Some(handover) = &self.handover {
            handover.rolled_back();
        }
        attempt.permit.into_iter().for_each(Permit::refund);
    }

    /// It is not known whether the attempt's transaction has committed. Its new key stays charged.
    pub fn commit_in_doubt(&self, attempt: &LocalAttempt) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::CommitInDoubt { operation_id, operation });
        if let Some(handover) = &self.handover {
            handover.shared().in_doubt();
        }
    }

    /// The attempt's transaction ended without its record: dropped, or committed by its own work.
    pub fn unfinished(&self, attempt: &LocalAttempt, is_committed: bool) {
        let (operation_id, operation) = attempt.name();
        self.node.observe(&Event::Unfinished { operation_id, operation, is_committed });
    }
}

/// The same ending without its body, which is too large for the store. `None` if it has none.
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
