//! The writer's requests and answers.

use super::fault::Fault;
use super::local::{LocalWork, WorkOutcome};
use super::row::Row;
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Entry;
use semel_core::store::{Change, Error, Reading, Setting, SideRow, SideTable, Written};
use semel_core::time::Time;
use std::fmt;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// One encoded write, and the channel for its answer.
pub(super) struct Job {
    pub(super) work: Work,
    /// The runtime of the calling task, if known.
    pub(super) runtime: Option<Handle>,
    reply: oneshot::Sender<Result<WriteAnswer, Error>>,
}

pub(super) type Answer = oneshot::Receiver<Result<WriteAnswer, Error>>;

/// The location of an entry: its ID and its index key.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntryLocation {
    pub(super) id: CommandId,
    pub(super) operation_id: OperationId,
}

impl EntryLocation {
    pub(super) fn of(id: CommandId) -> Self {
        Self { id, operation_id: OperationId::of(&id) }
    }
}

pub(super) enum Work {
    Change {
        location: EntryLocation,
        change: Change<Row>,
    },
    Set {
        name: String,
        expect: Option<Vec<u8>>,
        next: Option<Vec<u8>>,
    },
    AddSideRows {
        table: &'static SideTable,
        rows: Vec<SideRow>,
    },
    /// The settings of this connection.
    Inspect,
    /// The application's own work, with its record.
    Local(LocalWork),
}

/// The result. Sent only after it is durable.
#[derive(Debug)]
pub(super) enum WriteAnswer {
    Done(Time),
    Refused(Time, FoundEntry),
    Set(Setting),
    /// How many of the rows are in the table.
    SideRows(u64),
    Settings {
        synchronous: i64,
        journal_mode: String,
    },
    /// The result of the application's own work.
    Ran(WorkOutcome),
    /// This one failed and changed nothing; the others are not affected.
    Failed(Fault),
}

/// The entry that was found instead.
pub(super) enum FoundEntry {
    Nothing,
    /// Not decoded yet: the calling task does that.
    Bytes(Bytes),
    /// Too large for the writer's thread: the calling task has to ask a reader.
    Large,
    Read(Result<Entry, codec::Error>),
}

/// Without raw bytes, which may contain a stored answer.
impl fmt::Debug for FoundEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Large => f.write_str("Large"),
            Self::Read(entry) => f.debug_tuple("Read").field(entry).finish(),
        }
    }
}

impl WriteAnswer {
    /// As the answer to a write of an entry. `None` if that has to be read first.
    pub(super) fn written(self) -> Option<Written> {
        match self {
            Self::Refused(now, found) => {
                let entry = match found {
                    FoundEntry::Nothing => None,
                    FoundEntry::Bytes(bytes) => Some(codec::decode(&bytes)),
                    FoundEntry::Large => return None,
                    FoundEntry::Read(entry) => Some(entry),
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

    /// The caller may be gone; the write is still valid.
    pub(super) fn answer(self, answer: Result<WriteAnswer, Error>) {
        let answer = match answer {
            Ok(WriteAnswer::Failed(fault)) => Err(fault.error()),
            answer => answer,
        };
        drop(self.reply.send(answer));
    }

    /// Whether it is the application's own work.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.work, Work::Local(_))
    }

    /// Whether the caller still waits. Otherwise, a write that has not begun may be skipped.
    pub(super) fn is_awaited(&self) -> bool {
        !self.reply.is_closed()
    }

    /// The bytes of the write.
    pub(super) fn weight(&self) -> usize {
        match &self.work {
            Work::Change { change, .. } => change.record().map_or(0, |row| row.entry.len()),
            Work::Set { next, .. } => next.as_ref().map_or(0, Vec::len),
            Work::AddSideRows { rows, .. } => rows.iter().flatten().flatten().map(String::len).sum(),
            // Its size is not known yet.
            Work::Inspect | Work::Local(_) => 0,
        }
    }
}
