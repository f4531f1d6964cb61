//! The tables that applications use beside the records, in a store whose database has them.
//!
//! Their names and columns, and how their rows are written as text, so that they can be moved between databases. What
//! a row means is known to the application's library only.

/// A table that applications use in their own transactions.
#[derive(Debug, PartialEq, Eq)]
pub struct SideTable {
    /// Its name, without the prefix or schema that a store adds.
    pub name: &'static str,
    /// Its columns. The key comes first.
    pub columns: &'static [SideColumn],
    /// How many columns the key has.
    pub key_columns: usize,
}

/// A column, and how its values are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideColumn {
    /// As it is.
    Text(&'static str),
    /// In decimal.
    Number(&'static str),
    /// `0` or `1`.
    Flag(&'static str),
    /// In hexadecimal.
    Bytes(&'static str),
}

impl SideColumn {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text(name) | Self::Number(name) | Self::Flag(name) | Self::Bytes(name) => name,
        }
    }
}

impl SideTable {
    /// The columns of its key.
    pub fn key(&self) -> &'static [SideColumn] {
        &self.columns[..self.key_columns]
    }
}

/// A row of a [`SideTable`]: a text for each of its columns, `None` for NULL.
pub type SideRow = Vec<Option<String>>;

use SideColumn::{Bytes, Flag, Number, Text};

/// All of them.
pub static SIDE_TABLES: [SideTable; 5] = [
    SideTable {
        name: "inbox_marks",
        columns: &[
            Text("consumer_group"),
            Text("topic"),
            Text("message_id"),
            Bytes("fingerprint"),
            Number("processed_at"),
        ],
        key_columns: 3,
    },
    SideTable {
        name: "operation_fences",
        columns: &[
            Text("operation_id"),
            Number("fence"),
            Flag("is_done"),
            Bytes("result"),
            Number("updated_at"),
        ],
        key_columns: 1,
    },
    SideTable {
        name: "business_references",
        columns: &[
            Text("tenant"),
            Text("operation"),
            Text("reference"),
            Text("operation_id"),
            Number("bound_at"),
            Number("expires_at"),
        ],
        key_columns: 3,
    },
    SideTable {
        name: "counter_sums",
        columns: &[Text("counter"), Number("bucket"), Number("value")],
        key_columns: 2,
    },
    SideTable {
        name: "counter_operations",
        columns: &[
            Text("counter"),
            Text("operation_id"),
            Number("bucket"),
            Number("amount"),
            Flag("is_folded"),
            Number("counted_at"),
        ],
        key_columns: 2,
    },
];
