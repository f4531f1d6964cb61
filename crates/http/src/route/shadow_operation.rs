//! The operations of records in shadow mode: apart from those of all enforced requests.

/// A method that no request can have, so no enforced route has this scope.
pub(crate) const SHADOW: &str = "(shadow)";
/// The same for requests without a key, which are distinguished by their payload.
pub(crate) const UNKEYED: &str = "(shadow, without a key)";

/// Whether a record of this operation belongs to shadow mode: it is never replayed, and its ending has no
/// consequences.
pub fn is_shadow(operation: &str) -> bool {
    shadowed(operation).len() < operation.len()
}

/// The operation that a record is about, whether it belongs to shadow mode or not.
pub(crate) fn shadowed(operation: &str) -> &str {
    let mut markers = [SHADOW, UNKEYED].iter();
    let found = markers.find_map(|marker| operation.strip_prefix(marker)?.strip_prefix(' '));
    found.unwrap_or(operation)
}
