//! The running attempt, for the work.
//!
//! Its IDs, its fence, and the check before the effect is sent. Only the work itself can end it, and only once.

use crate::node::ownership::{Ownership, WriteError};
use semel_core::id::OperationId;
use semel_core::policy::Class;
use semel_core::scope::{EventId, NameError};
use semel_core::store;
use std::fmt;
use std::sync::Arc;

/// A running attempt, passed to its work.
#[derive(Clone)]
pub struct Attempt {
    pub(crate) ownership: Arc<Ownership>,
}

impl Attempt {
    /// The operation ID: the same on every attempt. Pass it to the system that runs the effect.
    pub fn operation_id(&self) -> OperationId {
        self.ownership.record().operation_id()
    }

    /// The operation's name, as its record has it.
    pub fn operation(&self) -> Arc<str> {
        Arc::clone(self.ownership.record().operation())
    }

    /// The ID of an event that this command causes: the same on every attempt.
    pub fn event_id(&self, name: &str) -> Result<EventId, NameError> {
        self.operation_id().event_id(name)
    }

    /// The number of this attempt: 1, 2, 3 …
    pub fn number(&self) -> u32 {
        self.ownership.record().attempt()
    }

    /// The guarantee that the command was claimed under. Later calls with another class do not change it.
    pub fn class(&self) -> Class {
        self.ownership.record().policy().class
    }

    /// Grows with every attempt: a system that stores the highest fence it has seen can refuse a late worker.
    pub fn fence(&self) -> u64 {
        self.ownership.record().fence()
    }

    /// Starts the effect of an intent that was [reserved](crate::Intent::reserved): this is stored before the call
    /// returns. On an error, send nothing and end the attempt as not applied.
    pub async fn start(&self) -> Result<(), LeaseError> {
        self.ownership.start().await.map_err(|error| match error {
            WriteError::Refused(_) => LeaseError::Lost,
            WriteError::Store(error) => LeaseError::Store(error),
            WriteError::Clock => LeaseError::ClockNotTrusted,
        })?;
        self.ownership.begin_deadline();
        self.check()
    }

    /// Checks that the effect may be sent *now*. Call it right before you send, if the work does other things first;
    /// the engine itself checks before the work begins. Always fails after the attempt is over, also for clones. On
    /// an error, send nothing and end the attempt as not applied.
    pub fn check(&self) -> Result<(), LeaseError> {
        if self.ownership.check() { Ok(()) } else { Err(LeaseError::Lost) }
    }

    /// Promises that this work sends nothing before a [`check`](Self::check) has succeeded, begins to send nothing
    /// after one has failed, and stops sending when it [is overdue](Self::is_overdue). Call it first.
    ///
    /// This avoids doubts. If the deadline, a shutdown or a panic ends the work before a check has succeeded, nothing
    /// was sent, and the attempt is given back. If it ends by its deadline later, the work gets two more seconds, in
    /// which every check fails: a process that was suspended can still read the answer that has already arrived.
    pub fn promise_checks(&self) {
        self.ownership.promise_checks();
    }

    /// Whether the effect may have begun: always, unless the work [promised](Self::promise_checks) to check before, and
    /// no check has succeeded.
    pub fn has_begun(&self) -> bool {
        !self.ownership.has_sent_nothing()
    }

    /// Whether the work's deadline is over.
    pub fn is_overdue(&self) -> bool {
        let ownership = &self.ownership;
        ownership.node.clock.uptime() >= ownership.deadline()
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = self.ownership.record();
        f.debug_struct("Attempt")
            .field("operation_id", &record.operation_id())
            .field("number", &record.attempt())
            .finish_non_exhaustive()
    }
}

/// Why the effect must not be sent.
#[derive(Debug)]
pub enum LeaseError {
    /// The lease has expired, or the record belongs to another attempt.
    Lost,
    /// The store did not accept the start.
    Store(store::Error),
    /// The clock is not trusted, so nothing can be dated.
    ClockNotTrusted,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the lease of the attempt is lost; send nothing"),
            Self::Store(error) => write!(f, "the attempt could not be started; send nothing: {error}"),
            Self::ClockNotTrusted => f.write_str("the clock is not trusted; send nothing"),
        }
    }
}

impl std::error::Error for LeaseError {}
