//! The location of the patterns' tables.

use semel_core::id::OperationId;
use std::sync::Arc;

/// The schema of a store whose URL names none.
const SCHEMA: &str = "semel";

/// The location of the patterns' tables. On SQLite they are in the connection's file, and there is no choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables {
    schema: Arc<str>,
}

impl Default for Tables {
    /// The schema `semel`.
    fn default() -> Self {
        Self { schema: SCHEMA.into() }
    }
}

impl Tables {
    /// On PostgreSQL, the schema of the store: what its URL says with `schema=`.
    pub fn in_schema(schema: impl Into<Arc<str>>) -> Self {
        Self { schema: schema.into() }
    }

    pub(super) fn schema(&self) -> &str {
        &self.schema
    }
}

/// A quoted name, which has no other meaning in a statement.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// An operation ID as stored in the tables.
pub(super) fn text_of(operation_id: &OperationId) -> String {
    operation_id.to_string()
}
