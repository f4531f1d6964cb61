//! Events of the engine.
//!
//! For metrics, logs and alarms. Events contain no raw key and no body, and the engine's behaviour does not depend on
//! them.

mod sweep_report;

pub use sweep_report::SweepReport;

use crate::time::ClockChange;
use semel_core::id::{CallerHash, OperationId};
use semel_core::record::StateName;
use semel_core::store;
use semel_core::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// Observes the engine. Called inline by the engine: be quick, and never block.
pub trait Observer: Send + Sync + 'static {
    /// Receives an event.
    fn observe(&self, event: &Event<'_>);
}

/// Ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn observe(&self, _: &Event<'_>) {}
}

/// Passes events to all observers in order.
impl Observer for Vec<Arc<dyn Observer>> {
    fn observe(&self, event: &Event<'_>) {
        for observer in self {
            observer.observe(event);
        }
    }
}

/// Why a request ran nothing and got no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "named after the answer to the caller")]
pub enum RequestRefusal {
    InProgress,
    Unknown,
    Mismatch,
    Expired,
    AttemptsExhausted,
    Unreadable,
    ClockNotTrusted,
}

/// Who resolved an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resolver {
    /// A reconciler: a probe of the gateway, or a callback of the service.
    Reconciler,
    /// An operator, by hand.
    Operator,
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
    /// The heartbeat's write of the time.
    Beat,
}

impl Call {
    /// The call's name in metrics.
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

/// An event.
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
        /// The answer.
        what: RequestRefusal,
    },
    /// A new key was refused by a quota.
    QuotaExceeded {
        /// The operation's name.
        operation: &'a str,
        /// The caller.
        caller: CallerHash,
    },
    /// An owner lost its lease: somebody else wrote the record, or an [`Observer`] panicked during a renewal and the
    /// lease is no longer renewed.
    LeaseLost {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// A finish was refused because the record no longer belongs to its attempt. `differs`: the stored outcome is not
    /// the attempt's outcome. An operator has to look at it.
    Fenced {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// Whether the record contradicts the attempt.
        differs: bool,
    },
    /// An outcome was not stored in time for its caller; the engine keeps trying.
    Unstored {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// Why not yet.
        error: &'a store::Error,
    },
    /// The record of an attempt that took effect is gone from the store. Alarm.
    RecordLost {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// This node cannot read a record. Alarm.
    Unreadable {
        /// The operation ID.
        operation_id: OperationId,
    },
    /// A sealed outcome could not be unsealed; it is answered as not retained. Alarm.
    Unopened {
        /// The operation ID.
        operation_id: OperationId,
    },
    /// The work panicked. The record is unchanged until its lease expires.
    Panicked {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// The transaction of a local command was rolled back by its work, by the database, or by a conflict. It left no
    /// trace.
    RolledBack {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// It is not known whether the transaction of a local command committed. A retry with the same key finds out.
    /// Alarm.
    CommitInDoubt {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// A transaction of a local command was dropped without an ending, or ended by its own work, or a handler reported
    /// success and never joined it. Alarm: if the work ended the transaction, an effect may have committed without a record.
    Unfinished {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// Whether the work itself ended the transaction.
        is_committed: bool,
    },
    /// The work took longer than its deadline and was dropped.
    Overran {
        /// The operation ID.
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
    /// An outcome has expired.
    Expired {
        /// The operation's name.
        operation: &'a str,
    },
    /// The sweeper has finished one chunk of due records; a round may have many.
    SweptChunk {
        /// The store's time when the chunk was read.
        at: Time,
        /// How long the longest overdue record of the round was overdue so far, counted as in
        /// [`SweepReport::lag`](crate::SweepReport::lag).
        lag: Duration,
    },
    /// The sweeper has finished a round.
    Swept(&'a SweepReport),
    /// The status of the store's clock has changed.
    Clock(ClockChange),
    /// The store refuses writes, or refuses them for another reason than before. Alarm.
    StoreRefuses {
        /// The error of the failed write.
        error: &'a store::Error,
    },
    /// The store accepts writes again.
    StoreWrites,
    /// The store has lost acknowledged records. It refuses whatever would need them. Alarm.
    StoreLost {
        /// The first error that reported it.
        error: &'a store::Error,
    },
    /// No part of the store is lost any more: the data is back, or an operator accepted its loss.
    StoreIntact,
    /// This node could not refresh its view of the hashing secret; it claims nothing when the view is too old. Alarm.
    SecretsBehind {
        /// Why.
        error: &'a crate::secrets::Error,
    },
    /// This node could refresh its view of the hashing secret again, after it could not.
    SecretsCurrent,
    /// Records could not be archived; none of them is deleted.
    ArchiveFailed {
        /// Why.
        error: &'a crate::archive::Error,
    },
    /// The owner of an attempt went silent after its effect may have started, and its record was marked `UNKNOWN` by
    /// the sweeper or by a request with the same key.
    Lapsed {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
    },
    /// An unknown outcome was resolved.
    Reconciled {
        /// The operation ID.
        operation_id: OperationId,
        /// The operation's name.
        operation: &'a str,
        /// The state that it led to.
        state: StateName,
        /// Who resolved it.
        by: Resolver,
    },
    /// No reconciler could resolve it in time: it is left to an operator.
    LeftToOperator {
        /// The operation ID.
        operation_id: OperationId,
    },
}

impl<'a> Event<'a> {
    /// The operation's name, if the event has one.
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
            | Self::Lapsed { operation, .. }
            | Self::Reconciled { operation, .. }
            | Self::Expired { operation } => Some(operation),
            _ => None,
        }
    }
}
