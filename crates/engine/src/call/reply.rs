//! From the machine's reply to the answer for the caller.

use crate::call::answer::{ExecuteResponse, Replayed, RequestOutcome, Stored};
use crate::node::Node;
use crate::node::clock::NodeClock;
use crate::observe::{Event, RequestRefusal};
use semel_core::id::{CallerHash, CommandId, OperationId};
use semel_core::machine::{self, Command, Found, Reply};
use semel_core::record::{Record, State, StateName};

/// The command that an answer is about.
pub(crate) struct Subject<'a> {
    pub(crate) id: CommandId,
    pub(crate) operation_id: OperationId,
    pub(crate) operation: &'a str,
    pub(crate) caller: CallerHash,
}

impl<'a> Subject<'a> {
    /// A command whose record is under `id`.
    pub(crate) fn under(id: CommandId, command: &'a Command<'_>) -> Self {
        let operation_id = if id == command.id { command.operation_id } else { OperationId::of(&id) };
        Self { id, operation_id, operation: &command.operation, caller: command.caller_hash }
    }
}

/// The answer for `reply`, which was judged from `found`.
pub(crate) fn answer<L>(
    node: &Node,
    subject: &Subject<'_>,
    found: Found<'_>,
    reply: Reply<'_>,
) -> ExecuteResponse<L> {
    ExecuteResponse {
        operation_id: subject.operation_id,
        outcome: request_outcome(node, subject, found, reply),
    }
}

/// The outcome for the caller of `reply`, which was judged from `found`.
pub(crate) fn request_outcome<L>(
    node: &Node,
    subject: &Subject<'_>,
    found: Found<'_>,
    reply: Reply<'_>,
) -> RequestOutcome<L> {
    let refused = |what| {
        let (operation, caller) = (subject.operation, subject.caller);
        node.observe(&Event::Refused { operation, caller, what });
    };
    match (reply, found) {
        (Reply::Replay(outcome), Found::Record(record)) => {
            node.observe(&Event::Replayed { operation: subject.operation });
            let outcome = node.sealing.open(subject.id, subject.operation_id, outcome);
            RequestOutcome::Replayed(Replayed { outcome, stored: stored(&node.clock, record) })
        }
        // Only a record has an outcome to replay.
        (Reply::InProgress | Reply::Replay(_), _) => {
            refused(RequestRefusal::InProgress);
            RequestOutcome::InProgress { retry_after: node.settings.retry_after }
        }
        (Reply::Unknown, found) => {
            refused(RequestRefusal::Unknown);
            node.reconcilers.queue_probe(subject.id, subject.operation);
            let repeatable = matches!(found, Found::Record(record) if is_repeatable(&node.clock, record));
            RequestOutcome::Unknown { repeatable }
        }
        (Reply::Mismatch, _) => {
            refused(RequestRefusal::Mismatch);
            RequestOutcome::Mismatch
        }
        (Reply::Expired, _) => {
            refused(RequestRefusal::Expired);
            RequestOutcome::Expired
        }
        (Reply::AttemptsExhausted, _) => {
            refused(RequestRefusal::AttemptsExhausted);
            RequestOutcome::AttemptsExhausted
        }
        (Reply::ClockNotTrusted, _) => {
            refused(RequestRefusal::ClockNotTrusted);
            let retry_after = node.clock.trusted.retry_after(node.clock.uptime());
            RequestOutcome::ClockNotTrusted { retry_after: retry_after.max(node.settings.retry_after) }
        }
        (Reply::Unreadable, _) => {
            refused(RequestRefusal::Unreadable);
            node.observe(&Event::Unreadable { operation_id: subject.operation_id });
            RequestOutcome::Unreadable
        }
    }
}

/// Whether a retry can resolve a doubt about this record, at the latest possible time.
pub(crate) fn is_repeatable(clock: &NodeClock, record: &Record) -> bool {
    machine::may_repeat(record, clock.now_at_the_latest())
}

/// The record's state and expiry.
pub(crate) fn stored(clock: &NodeClock, record: &Record) -> Stored {
    let expires_at = machine::expires_at(record, clock.now_at_the_latest());
    Stored { state: record.state_name(), expires_at }
}

/// Whether the cache may hold this record.
pub(crate) fn is_kept(record: &Record) -> bool {
    matches!(record.state(), State::Succeeded { .. } | State::FailedReplayable { .. })
}

/// Whether the effect of a record cannot have begun.
pub(crate) fn has_not_begun(record: &Record) -> bool {
    record.state_name() == StateName::Claimed
}
