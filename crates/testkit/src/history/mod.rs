//! The calls to a store, its answers and their order. [`linearizability`](crate::linearizability) judges them.

mod lines;
mod recorder;

pub use recorder::Recorder;

use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::machine::Unchanged;
use semel_core::record::{Entry, Record};
use semel_core::store::{Change, Kind, Reading};
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// An entry, as far as a history distinguishes entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value {
    /// A record.
    Record {
        /// The condition for a write over it.
        unchanged: Unchanged,
        /// A hash of its encoded bytes.
        digest: u64,
    },
    /// The marker of a command that has moved.
    Marker,
    /// An unreadable entry. No write produces it.
    Unreadable,
}

impl Value {
    /// This record.
    pub fn of(record: &Record) -> Self {
        let mut hasher = DefaultHasher::new();
        codec::encode_record(record).hash(&mut hasher);
        Self::Record { unchanged: Unchanged::of(record), digest: hasher.finish() }
    }

    /// The entry that a store returned.
    pub fn shown(reading: &Reading) -> Option<Self> {
        Some(match reading.entry.as_ref()? {
            Ok(Entry::Record(record)) => Self::of(record),
            Ok(Entry::Moved) => Self::Marker,
            Err(_) => Self::Unreadable,
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record { unchanged, digest } => {
                let (token, state) = (unchanged.token.bits() >> 96, unchanged.state);
                write!(f, "{state} v{} token {token:08x} #{:08x}", unchanged.version, digest >> 32)
            }
            Self::Marker => f.write_str("a marker"),
            Self::Unreadable => f.write_str("an unreadable entry"),
        }
    }
}

/// A call on one ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// A read.
    Get,
    /// A conditional write.
    Write(Change<Value>),
}

/// The answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The write was applied.
    Done,
    /// The write was refused; contains the stored entry.
    Refused(Option<Value>),
    /// The entry that was read.
    Read(Option<Value>),
    /// An error that says that nothing was written.
    Failed(Kind),
    /// An ambiguous error.
    Ambiguous,
}

/// One call from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The calling node.
    pub node: Arc<str>,
    /// The call's number at that node.
    pub number: u64,
    /// The ID.
    pub id: CommandId,
    /// The call.
    pub call: Call,
    /// When it began.
    pub invoked_at: u64,
    /// The answer, and when it was complete. `None` for a call that was dropped, or whose process was killed.
    pub answer: Option<(u64, Answer)>,
}

impl Operation {
    /// Whether it may take effect at any moment after its beginning, or never.
    pub fn is_open(&self) -> bool {
        matches!(self.answer, None | Some((_, Answer::Ambiguous)))
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |value: Option<Value>| value.map_or("nothing".to_owned(), |value| value.to_string());
        write!(f, "{} call {} [{}..", self.node, self.number, self.invoked_at)?;
        match self.answer {
            Some((at, _)) => write!(f, "{at}]: ")?,
            None => f.write_str("]: ")?,
        }
        match self.call {
            Call::Get => f.write_str("get")?,
            Call::Write(Change::Insert(next)) => write!(f, "insert {next}")?,
            Call::Write(Change::InsertMarker) => f.write_str("insert marker")?,
            Call::Write(Change::Replace(old, next)) => write!(f, "replace v{} by {next}", old.version)?,
            Call::Write(Change::Remove(old)) => write!(f, "remove v{}", old.version)?,
            Call::Write(Change::RemoveMarker) => f.write_str("remove marker")?,
        }
        match self.answer.map(|(_, answer)| answer) {
            None => f.write_str(" -> no answer"),
            Some(Answer::Done) => f.write_str(" -> done"),
            Some(Answer::Refused(value)) => write!(f, " -> refused, shows {}", shown(value)),
            Some(Answer::Read(value)) => write!(f, " -> {}", shown(value)),
            Some(Answer::Failed(kind)) => write!(f, " -> error: {kind}"),
            Some(Answer::Ambiguous) => f.write_str(" -> ambiguous"),
        }
    }
}

/// The calls of one or several nodes.
///
/// Moments of different nodes are comparable if they share a clock: the recorder of a process, or the machine's
/// uptime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    operations: Vec<Operation>,
}

impl History {
    /// These calls.
    pub fn new(operations: impl IntoIterator<Item = Operation>) -> Self {
        Self { operations: operations.into_iter().collect() }
    }

    /// Reads the file of a recorder up to the last complete line: the last line of a killed process may be cut off.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Self> {
        let text = std::fs::read_to_string(&path)?;
        lines::parse(&text).map_err(|reason| {
            io::Error::new(io::ErrorKind::InvalidData, format!("{}: {reason}", path.as_ref().display()))
        })
    }

    /// The calls of all of these.
    #[must_use]
    pub fn merged(histories: impl IntoIterator<Item = Self>) -> Self {
        Self::new(histories.into_iter().flat_map(|history| history.operations))
    }

    /// Every call.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The calls about each id.
    pub fn by_id(&self) -> BTreeMap<CommandId, Vec<&Operation>> {
        let mut by_id: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for operation in &self.operations {
            by_id.entry(operation.id).or_default().push(operation);
        }
        by_id
    }
}
