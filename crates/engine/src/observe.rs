//! What the engine tells anyone who watches it.
//!
//! Contents: events for metrics, logs and alarms. Never here: a raw key, a body, or anything that the engine's
//! behaviour depends on.

use crate::time::ClockChange;
use semel_core::id::{CallerHash, OperationId};
use semel_core::record::StateName;
use semel_core::store;
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// Watches the engine. Called on the engine's own paths: be quick, and never block.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn observe(&self, event: &Event<'_>);
}

/// Nobody watches.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Event<'_>) {}
}

/// Everything that watches, one after the other.
impl Observer for Vec<Arc<dyn Observer>> {
    fn observe(&self, event: &Event<'_>) {
        for observer in self {
            observer.observe(event);
        }
    }
}

/// What a request got that ran nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after what the caller was told")]
pub enum Refused {
    InProgress,
    Unknown,
    Mismatch,
    Expired,
    AttemptsExhausted,
    Unreadable,
    ClockNotTrusted,
}

/// A call to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the store's own functions")]
pub enum Call {
    Insert,
    Swap,
    Remove,
    Get,
    Find,
    Due,
    Count,
    Page,
    /// The time, written by the heartbeat.
    Beat,
}

impl Call {
    /// The call as a metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Insert => "insert",
            Self::Swap => "swap",
            Self::Remove => "remove",
            Self::Get => "get",
            Self::Find => "find",
            Self::Due => "due",
            Self::Count => "count",
            Self::Page => "page",
            Self::Beat => "beat",
        }
    }
}

/// Something that happened.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An attempt was claimed.
    Claimed {
        /// The operation's name.
        operation: &'a str,
        /// Which attempt it is.
        attempt: u32,
    },
    /// An attempt ended and its ending is stored.
    Finished {
        /// The operation's name.
        operation: &'a str,
        /// The state that it led to.
        state: StateName,
    },
    /// A stored outcome was replayed.
    Replayed {
        /// The operation's name.
        operation: &'a str,
    },
    /// A request was answered without an attempt and without an outcome.
    Refused {
        /// The operation's name.
        operation: &'a str,
        /// The caller.
        caller: CallerHash,
        /// What it was told.
        what: Refused,
    },
    /// A new key was refused by a quota.
    QuotaExceeded {
        /// The operation's name.
        operation: &'a str,
        /// The caller.
        caller: CallerHash,
    },
    /// An owner learnt that its lease is lost: somebody else wrote the record, or an [`Observer`] panicked while it
    /// was renewed and it is renewed no more.
    LeaseLost {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// A finish was refused because the record is no longer its attempt's. `differs`: what is stored there is not
    /// what the attempt led to. Somebody has to look.
    Fenced {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// Whether the record says otherwise than the attempt.
        differs: bool,
    },
    /// An outcome could not be stored within the time that its caller waits for that; the engine goes on trying.
    Unstored {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// Why not yet.
        error: &'a store::Error,
    },
    /// The record of an attempt that took effect is gone from the store. Alarm.
    RecordLost {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// Something is in the store that this node cannot read. Alarm.
    Unreadable {
        /// Which command.
        operation_id: OperationId,
    },
    /// A sealed outcome could not be opened; it is answered as not retained. Alarm.
    Unopened {
        /// Which command.
        operation_id: OperationId,
    },
    /// The work panicked. The record is left as it is until its lease dies.
    Panicked {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// The transaction of a local command was rolled back: by its work, by the database, or by a conflict. Nothing of
    /// it is left.
    RolledBack {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// Nobody can tell whether the transaction of a local command committed. A retry with the same key finds out.
    /// Alarm.
    CommitInDoubt {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// A transaction was joined for a local command and dropped without an ending, or ended by its own work; or a
    /// handler that the command was handed to never joined it. Alarm: where the work ended the transaction, an effect
    /// may have been committed without a record.
    Unfinished {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// Whether the work itself ended the transaction.
        is_committed: bool,
    },
    /// The work took longer than its deadline and was dropped.
    Overran {
        /// Which command.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// A call to the store was answered.
    Asked {
        /// Which call.
        call: Call,
        /// How long it took.
        took: Duration,
        /// The error, if it was one.
        error: Option<&'a store::Error>,
    },
    /// An outcome was found past its time.
    Expired {
        /// The operation's name.
        operation: &'a str,
    },
    /// The sweeper has been through one chunk of what is due, and lives; a round may have many.
    SweptChunk {
        /// The store's time when it was asked for the chunk.
        at: Time,
    },
    /// The sweeper has been through what was due.
    Swept(&'a crate::sweep::Swept),
    /// What is thought of the store's clock has changed.
    Clock(ClockChange),
    /// The store takes no writes any more, or for another reason than before. Alarm.
    StoreRefuses {
        /// What the write that showed it failed with.
        error: &'a store::Error,
    },
    /// The store takes writes again.
    StoreWrites,
    /// This node could not keep up with the hashing secret; it claims nothing as soon as its view is too old. Alarm.
    SecretsBehind {
        /// Why.
        error: &'a crate::secrets::Error,
    },
    /// Records could not be archived; none of them is deleted.
    ArchiveFailed {
        /// Why.
        error: &'a crate::archive::Error,
    },
    /// A reconciler settled an unknown outcome.
    Reconciled {
        /// Which command.
        operation_id: OperationId,
        /// The state that it led to.
        state: StateName,
    },
    /// No reconciler could tell within its time: it is left to an operator.
    LeftToOperator {
        /// Which command.
        operation_id: OperationId,
    },
}

impl<'a> Event<'a> {
    /// The operation's name, where the event has one.
    pub const fn operation(&self) -> Option<&'a str> {
        match *self {
            Self::Claimed { operation, .. }
            | Self::Finished { operation, .. }
            | Self::Replayed { operation }
            | Self::Refused { operation, .. }
            | Self::QuotaExceeded { operation, .. }
            | Self::LeaseLost { operation, .. }
            | Self::Fenced { operation, .. }
            | Self::Unstored { operation, .. }
            | Self::RecordLost { operation, .. }
            | Self::RolledBack { operation, .. }
            | Self::CommitInDoubt { operation, .. }
            | Self::Unfinished { operation, .. }
            | Self::Panicked { operation, .. }
            | Self::Overran { operation, .. }
            | Self::Expired { operation } => Some(operation),
            _ => None,
        }
    }
}
