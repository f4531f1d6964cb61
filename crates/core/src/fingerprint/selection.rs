//! Which parts of a request count, kept with the record so that a retry is judged by the record's own choice.

/// The algorithm version together with the chosen headers and JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Selection {
    version: u8,
    headers: Vec<String>,
    include: Vec<String>,
    exclude: Vec<String>,
}
