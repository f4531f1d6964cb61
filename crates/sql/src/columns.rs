//! The columns of an entry, the same in every database.

use semel_core::codec;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::Unchanged;
use semel_core::record::{Entry, Record, StateName};
use semel_core::store::{Error, Kind};
use semel_core::time::Time;
use std::fmt;
use std::sync::Arc;

/// The number of a marker in the state column. No state has it.
pub(crate) const MARKER: i64 = 7;

/// A state's number in its column, as defined by the core.
pub(crate) fn state(name: StateName) -> i64 {
    name.number().into()
}

/// The state with this number; `None` for a marker or an unknown number.
pub(crate) fn state_name(number: i64) -> Option<StateName> {
    u8::try_from(number).ok().and_then(StateName::from_number)
}

/// A time in a signed column. Times more than 292 million years away are stored as the maximum; if that could
/// matter, the entry itself is checked.
pub(crate) fn time(time: Time) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The first eight bytes of a keyed hash: one in 2^64 pairs shares them, and clients cannot choose them.
fn prefix(hash: &[u8; 32]) -> i64 {
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_be_bytes(first)
}

pub(crate) fn caller(hash: &CallerHash) -> i64 {
    prefix(hash.as_bytes())
}

pub(crate) fn key(hash: &KeyHash) -> i64 {
    prefix(hash.as_bytes())
}

/// A row to write: the entry's bytes and its indexed columns. Built in the calling task, not in the writer's
/// thread.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) state: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) updated_at: Option<i64>,
    pub(crate) caller: Option<i64>,
    pub(crate) key: Option<i64>,
    pub(crate) operation: Option<Arc<str>>,
    pub(crate) entry: Vec<u8>,
    /// The condition of a swap that was computed from this; a marker is never swapped.
    pub(crate) unchanged: Option<Unchanged>,
}

/// The row of a record under `id`. Rejects a record that belongs to another ID, or is too large for the
/// store.
pub(crate) fn encoded(id: CommandId, record: &Record, entry_bytes_max: u64) -> Result<Row, Error> {
    const WRITING: &str = "writing a record";
    // The index relies on this: otherwise a record could be found under one ID and not under the other.
    if record.operation_id() != OperationId::of(&id) {
        let cause = "its operation ID does not match its command ID";
        return Err(Error::new(Kind::Unfit, WRITING).because(cause));
    }
    let row = Row::of(record);
    check_size(WRITING, row.entry.len(), entry_bytes_max)?;
    Ok(row)
}

/// Rejects an entry that is too large for the store.
pub(crate) fn check_size(context: &str, bytes: usize, bytes_max: u64) -> Result<(), Error> {
    if u64::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max) {
        return Ok(());
    }
    let cause = format!("{bytes} bytes; at most {bytes_max} are allowed");
    Err(Error::new(Kind::TooLarge, context).because(cause))
}

/// Without the entry, which may contain a stored answer.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row")
            .field("state", &self.state)
            .field("due_at", &self.due_at)
            .finish_non_exhaustive()
    }
}

impl Row {
    pub(crate) fn of(record: &Record) -> Self {
        Self {
            state: state(record.state_name()),
            due_at: record.due_at().map(time),
            updated_at: Some(time(record.updated_at())),
            caller: Some(caller(&record.caller_hash())),
            key: Some(key(&record.key_hash())),
            operation: Some(record.operation().clone()),
            entry: codec::encode_record(record),
            unchanged: Some(Unchanged::of(record)),
        }
    }

    pub(crate) fn marker() -> Self {
        let entry = codec::encode(&Entry::Moved);
        Self {
            state: MARKER,
            due_at: None,
            updated_at: None,
            caller: None,
            key: None,
            operation: None,
            entry,
            unchanged: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_keep_their_order_in_a_signed_column() {
        let moments = [0, 1, 1_800_000_000_000, i64::MAX.unsigned_abs() - 1, i64::MAX.unsigned_abs()];
        let columns = moments.map(|millis| time(Time::from_millis(millis)));
        assert!(columns.is_sorted_by(|a, b| a < b) && columns[0] == 0, "{columns:?}");
        assert_eq!(time(Time::MAX), i64::MAX);
    }

    #[test]
    fn a_markers_number_belongs_to_no_state() {
        assert_eq!(state_name(MARKER), None);
        for name in StateName::ALL {
            assert_eq!(state_name(state(name)), Some(name));
        }
        for other in [-1, 256, 256 + state(StateName::Unknown), i64::MIN, i64::MAX] {
            assert_eq!(state_name(other), None, "{other}");
        }
    }
}
