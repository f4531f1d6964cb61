//! What is asked of the writer, and what it says.

use super::fault::Fault;
use super::local::{LocalWork, WorkOutcome};
use super::row::Row;
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Entry;
use semel_core::store::{Change, Error, Reading, Setting, Written};
use semel_core::time::Time;
use std::fmt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// One write, encoded, with whom to answer.
pub(super) struct Job {
    pub(super) work: Work,
    /// Where the task that asked runs, if that can be told.
    pub(super) runtime: Option<Handle>,
    reply: oneshot::Sender<Result<Said, Error>>,
}

pub(super) type Answer = oneshot::Receiver<Result<Said, Error>>;

/// Where an entry stands: its id, and what the index knows it by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) id: CommandId,
    pub(super) operation_id: OperationId,
}

impl Place {
    pub(super) fn of(id: CommandId) -> Self {
        Self { id, operation_id: OperationId::of(&id) }
    }
}

pub(super) enum Work {
    Change {
        place: Place,
        change: Change<Row>,
    },
    Set {
        name: String,
        expect: Option<Vec<u8>>,
        next: Option<Vec<u8>>,
    },
    /// What this very connection is set to.
    Inspect,
    /// Work of the application's own, with its record.
    Local(LocalWork),
}

/// What came of it. Told only once it is durable.
#[derive(Debug)]
pub(super) enum Said {
    Done(Time),
    Refused(Time, Standing),
    Set(Setting),
    Settings {
        synchronous: i64,
        journal_mode: String,
    },
    /// What came of the application's own work.
    Ran(WorkOutcome),
    /// This one failed and changed nothing, and the others need not care.
    Failed(Fault),
}

/// What was there instead.
pub(super) enum Standing {
    Nothing,
    /// Not looked into yet: that is left to the task that asked.
    Bytes(Bytes),
    /// Too large to be read by the thread that writes: the task that asked has to ask a reader.
    Large,
    Read(Result<Entry, codec::Error>),
}

/// Without bytes that were not looked into: a stored answer may be among them.
impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Large => f.write_str("Large"),
            Self::Read(entry) => f.debug_tuple("Read").field(entry).finish(),
        }
    }
}

impl Said {
    /// As the answer to a write of an entry. `None` if that has to be read first.
    pub(super) fn written(self) -> Option<Written> {
        match self {
            Self::Refused(now, standing) => {
                let entry = match standing {
                    Standing::Nothing => None,
                    Standing::Bytes(bytes) => Some(codec::decode(&bytes)),
                    Standing::Large => return None,
                    Standing::Read(entry) => Some(entry),
                };
                Some(Written::Refused(Reading { now, entry }))
            }
            Self::Done(now) => Some(Written::Done { now }),
            other => unreachable!("a write of an entry is not answered {other:?}"),
        }
    }
}

impl Job {
    pub(super) fn new(work: Work) -> (Self, Answer) {
        let (reply, answer) = oneshot::channel();
        (Self { work, runtime: Handle::try_current().ok(), reply }, answer)
    }

    /// Anyone who asked may be gone; what was written stays written.
    pub(super) fn answer(self, said: Result<Said, Error>) {
        let said = match said {
            Ok(Said::Failed(fault)) => Err(fault.error()),
            said => said,
        };
        drop(self.reply.send(said));
    }

    /// Whether it is work of the application's own.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.work, Work::Local(_))
    }

    /// Whether anybody still waits for the answer. A write that has not begun may be left undone where nobody does.
    pub(super) fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    /// The bytes that it brings.
    pub(super) fn weight(&self) -> usize {
        match &self.work {
            Work::Change { change, .. } => change.record().map_or(0, |row| row.entry.len()),
            Work::Set { next, .. } => next.as_ref().map_or(0, Vec::len),
            // What it will write nobody knows yet.
            Work::Inspect | Work::Local(_) => 0,
        }
    }
}
