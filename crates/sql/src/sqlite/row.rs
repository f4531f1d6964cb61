//! An entry as columns of SQLite.
//!
//! Conditions are decided by the entry's bytes, and never by a column here; columns only find it.

pub(super) use crate::columns::{MARKER, Row, caller, key, state, state_name, time};

use bytes::Bytes;
use rusqlite::types::ValueRef;
use semel_core::id::CommandId;
use semel_core::record::{Record, StateName};

/// Questions that only this store asks about a row.
impl Row {
    /// Whether the stored entry waits for an outcome.
    pub(super) fn is_unfinished(&self) -> bool {
        self.state == state(StateName::Claimed) || self.state == state(StateName::Processing)
    }

    /// Whether this differs from `other` only in what every write changes.
    pub(super) fn same_command_as(&self, other: &Self) -> bool {
        (self.caller, self.key, &self.operation) == (other.caller, other.key, &other.operation)
    }

    /// Whether this differs from `record` only in what every write changes.
    pub(super) fn same_command(&self, record: &Record) -> bool {
        self.caller == Some(caller(&record.caller_hash()))
            && self.key == Some(key(&record.key_hash()))
            && self.operation.as_deref() == Some(&**record.operation())
    }
}

/// The id in a column; `None` if something else is there.
pub(super) fn command_id(value: ValueRef<'_>) -> Option<CommandId> {
    let ValueRef::Blob(bytes) = value else { return None };
    bytes.try_into().ok().map(CommandId::from_bytes)
}

/// The number in a column; `None` if something else is there.
pub(super) fn number(value: ValueRef<'_>) -> Option<i64> {
    value.as_i64().ok()
}

/// The entry's bytes. A value of another type is read as damaged bytes.
pub(super) fn entry_bytes(value: ValueRef<'_>) -> Bytes {
    match value {
        ValueRef::Blob(bytes) => Bytes::copy_from_slice(bytes),
        _ => Bytes::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_core::codec;

    #[test]
    fn a_value_of_another_type_is_damaged_and_not_absent() {
        assert!(codec::decode(&entry_bytes(ValueRef::Null)).is_err());
        assert!(codec::decode(&entry_bytes(ValueRef::Integer(7))).is_err());
        assert_eq!(command_id(ValueRef::Blob(&[0; 31])), None);
        assert_eq!(command_id(ValueRef::Text(&[0; 32])), None);
        assert_eq!(command_id(ValueRef::Blob(&[9; 32])), Some(CommandId::from_bytes([9; 32])));
    }
}
