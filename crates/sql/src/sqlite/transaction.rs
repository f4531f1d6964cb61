//! The store's statements for a transaction on the application's own connection.
//!
//! Contents: the statements and the values, for any driver. A write fails if its condition does not hold,
//! because the application commits its own changes with it.

use super::ENTRY_BYTES_MAX;
use super::row_writer::other_command;
use super::write::EntryLocation;
use crate::columns::{self, Row};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::CommandId;
use semel_core::record::{Record, StateName};
use semel_core::store::{Error, Reading};
use semel_core::time::Time;

/// `?1` an operation id. Command id and entry, or no row.
pub const LOOK: &str = "SELECT command_id, entry FROM semel_records WHERE operation_id = ?1";
/// `?1` the name of a setting. Its value, or no row.
pub const SETTING: &str = "SELECT value FROM semel_settings WHERE name = ?1";
/// Changes nothing, and takes the file's write lock for its transaction.
pub const TAKE_LOCK: &str = "UPDATE semel_counts SET rows = rows WHERE 0";
/// The values of [`RecordColumns`], `?1` to `?9` in the order of its fields. One row, or an error.
pub const INSERT: &str = "INSERT INTO semel_records \
     (operation_id, command_id, state, due_at, updated_at, caller, key, operation, entry) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
/// The same, then `?10` the entry that must still be there, to the last byte. One row, or none.
pub const REPLACE: &str = "UPDATE semel_records SET state = ?3, due_at = ?4, updated_at = ?5, caller = ?6, key = ?7, \
     operation = ?8, entry = ?9 WHERE operation_id = ?1 AND command_id = ?2 AND entry = ?10";
/// `?1` operation id, `?2` command id, `?3` the entry that must still be there. One row, or none. A trigger
/// updates the counts.
pub const REMOVE: &str =
    "DELETE FROM semel_records WHERE operation_id = ?1 AND command_id = ?2 AND entry = ?3";
/// `?1` the number of a state, `?2` the change of its number of rows.
pub const COUNT_STATE: &str = "UPDATE semel_counts SET rows = rows + ?2 WHERE state = ?1";
/// `?1` a caller as in [`RecordColumns::caller`], who has one more record.
pub const COUNT_CALLER: &str = "INSERT INTO semel_callers (caller, rows) VALUES (?1, 1) \
     ON CONFLICT (caller) DO UPDATE SET rows = rows + 1";

/// The lowest value of `PRAGMA synchronous` at which a commit waits for the disk.
pub const SYNCHRONOUS_MIN: i64 = super::open::FULL;

/// The operation ID of a command, as in its column.
pub fn operation_id(id: &CommandId) -> Vec<u8> {
    EntryLocation::of(*id).operation_id.as_bytes().to_vec()
}

/// The number of a state in its column.
pub fn state(name: StateName) -> i64 {
    columns::state(name)
}

/// One row.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "named after the columns")]
pub struct RecordColumns {
    pub operation_id: Vec<u8>,
    pub command_id: Vec<u8>,
    pub state: i64,
    pub due_at: Option<i64>,
    pub updated_at: Option<i64>,
    pub caller: Option<i64>,
    pub key: Option<i64>,
    pub operation: Option<String>,
    pub entry: Vec<u8>,
}

impl RecordColumns {
    /// A record's row. Refused if the record is too large, or belongs under another ID.
    pub fn of(id: CommandId, record: &Record) -> Result<Self, Error> {
        Ok(Self::from_row(id, columns::encoded(id, record, ENTRY_BYTES_MAX)?))
    }

    /// The row of a command under the next secret's ID.
    pub fn marker(id: CommandId) -> Self {
        Self::from_row(id, Row::marker())
    }

    fn from_row(id: CommandId, row: Row) -> Self {
        Self {
            operation_id: operation_id(&id),
            command_id: id.as_bytes().to_vec(),
            state: row.state,
            due_at: row.due_at,
            updated_at: row.updated_at,
            caller: row.caller,
            key: row.key,
            operation: row.operation.as_deref().map(str::to_owned),
            entry: row.entry,
        }
    }
}

/// The entry under an ID, from the columns of [`LOOK`].
pub fn reading(id: &CommandId, now: Time, found: Option<(&[u8], &[u8])>) -> Result<Reading, Error> {
    match found {
        None => Ok(Reading::nothing(now)),
        Some((command_id, entry)) if command_id == id.as_bytes() => {
            Ok(Reading { now, entry: Some(codec::decode(&Bytes::copy_from_slice(entry))) })
        }
        Some(_) => Err(other_command().error()),
    }
}
