//! A record that somebody looked up.

use semel_core::id::CommandId;
use semel_core::record::Record;
use semel_core::time::Now;

/// A record that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRecord {
    /// Its command ID.
    pub id: CommandId,
    /// The record.
    pub record: Record,
    /// The engine's current time, and how far it is trusted.
    pub now: Now,
}
