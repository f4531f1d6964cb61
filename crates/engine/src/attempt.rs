//! The attempt, as the work sees it.
//!
//! Contents: its names, its fence, and the check before the effect's first byte. Never here: a way to end it twice,
//! or from outside the work.

use crate::ownership::{Ownership, Unwritten};
use semel_core::id::OperationId;
use semel_core::policy::Class;
use semel_core::scope::{EventId, NameError};
use semel_core::store;
use std::fmt;
use std::sync::Arc;

/// An attempt under way, handed to the work that makes it.
#[derive(Clone)]
pub struct Attempt {
    pub(crate) ownership: Arc<Ownership>,
}

impl Attempt {
    /// The public name of the command: the same on every attempt. Hand it to whatever system the effect happens in.
    pub fn operation_id(&self) -> OperationId {
        self.ownership.record().operation_id()
    }

    /// The id of an event that this command causes: the same on every attempt.
    pub fn event_id(&self, name: &str) -> Result<EventId, NameError> {
        self.operation_id().event_id(name)
    }

    /// Which attempt this is: 1, 2, 3 …
    pub fn number(&self) -> u32 {
        self.ownership.record().attempt()
    }

    /// The guarantee that the command was claimed under. It stays that of the first attempt, whatever later calls ask
    /// for.
    pub fn class(&self) -> Class {
        self.ownership.record().policy().class
    }

    /// Grows with every attempt: a system that remembers the highest fence it has seen can refuse a late worker.
    pub fn fence(&self) -> u64 {
        self.ownership.record().fence()
    }

    /// The effect is about to begin, of an intent that was [reserved](crate::Intent::reserved): stored before this
    /// returns. On an error nothing may be sent: end the attempt as not applied.
    pub async fn start(&self) -> Result<(), NotYours> {
        self.ownership.start().await.map_err(|unwritten| match unwritten {
            Unwritten::Refused(_) => NotYours::Lost,
            Unwritten::Store(error) => NotYours::Store(error),
            Unwritten::Clock => NotYours::ClockNotTrusted,
        })?;
        self.ownership.begin_deadline();
        self.check()
    }

    /// Whether the effect may be sent *now*. To be asked right before its first byte leaves, where the work does
    /// other things first; the engine itself asks before the work begins. Fails for good as soon as the attempt is
    /// over, whatever a clone of it may still be doing. On an error nothing may be sent: end the attempt as not
    /// applied.
    pub fn check(&self) -> Result<(), NotYours> {
        if self.ownership.may_send() { Ok(()) } else { Err(NotYours::Lost) }
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
pub enum NotYours {
    /// The lease has lapsed, or the record is another attempt's by now.
    Lost,
    /// The store did not take the start.
    Store(store::Error),
    /// The clock is not trusted, so that nothing can be dated.
    ClockNotTrusted,
}

impl fmt::Display for NotYours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost => f.write_str("the attempt's lease is lost; nothing may be sent"),
            Self::Store(error) => write!(f, "the attempt could not be started; nothing may be sent: {error}"),
            Self::ClockNotTrusted => f.write_str("the clock is not trusted; nothing may be sent"),
        }
    }
}

impl std::error::Error for NotYours {}
