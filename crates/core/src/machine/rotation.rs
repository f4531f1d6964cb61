//! How keys keep working during a rotation of the hashing secret: the ID under the old secret decides.

use super::Found;

/// A node's stage in the rotation of the hashing secret. Nodes in neighbouring stages can work side by side. A node
/// may enter a stage only after all nodes have confirmed the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// All nodes know both secrets; commands are claimed under the old one.
    Announced,
    /// Commands are claimed under the new secret, after a marker was stored under the old ID.
    Moving,
}

/// Where to look for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a command that is searched elsewhere may run twice"]
pub enum Route {
    /// Under the old id.
    Old,
    /// Under the new id.
    New,
    /// Insert [`Entry::Moved`](crate::record::Entry::Moved) under the old ID, if there is no entry. If it is stored,
    /// continue under the new ID. If it is refused, call again with the stored entry.
    PlantMarker,
}

/// Where to look for a command during a rotation, given the entry under its old ID.
///
/// To look under both IDs and then insert would be a race that can run a command twice. One insert under the old ID
/// decides.
///
/// ```
/// use semel_core::machine::{Found, Route, Stage, route};
///
/// assert_eq!(route(Stage::Announced, Found::Nothing), Route::Old);
/// assert_eq!(route(Stage::Moving, Found::Nothing), Route::PlantMarker);
/// assert_eq!(route(Stage::Announced, Found::Moved), Route::New);
/// ```
pub fn route(stage: Stage, under_old: Found<'_>) -> Route {
    match (stage, under_old) {
        (_, Found::Moved) => Route::New,
        (_, Found::Record(_) | Found::Unreadable) | (Stage::Announced, Found::Nothing) => Route::Old,
        (Stage::Moving, Found::Nothing) => Route::PlantMarker,
    }
}
