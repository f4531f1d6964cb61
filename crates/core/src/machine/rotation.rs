//! How a change of the hashing secret keeps every key what it is: the id under the old secret arbitrates.

use super::Found;

/// How far a node has come in replacing the hashing secret. Nodes on neighbouring stages work side by side;
/// a store must hold every node back from a stage until all have confirmed the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Both secrets are known; commands are claimed under the old one.
    Announced,
    /// Commands are claimed under the new secret, once a marker is under the old id.
    Moving,
}

/// Where a command is to be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[must_use = "a command that is looked for elsewhere may run twice"]
pub enum Route {
    /// Under the old id.
    Old,
    /// Under the new id.
    New,
    /// Insert [`Entry::Moved`](crate::record::Entry::Moved) under the old id, if nothing is there; stored, go on
    /// under the new id; refused, ask again with what is stored there.
    PlantMarker,
}

/// Where to look for a command while the secret is being replaced, given what is under its old id.
///
/// Looking under both ids and then inserting would be a race that runs a command twice; one insert under the
/// old id decides.
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
