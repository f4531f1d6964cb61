//! Labels that a handler attaches to its outcome, so that operators find the record.
//!
//! Three short texts that are never sealed and never part of a replay. They decide nothing.

use std::sync::Arc;

/// The most bytes of each label. Longer text is truncated at a character boundary.
pub const LABEL_BYTES_MAX: usize = 255;

/// What an outcome is about, in the service's own terms. Operators see and search labels, and everyone with access to
/// the store can read them. Put no secrets and no personal data into them.
///
/// ```
/// use semel_core::labels::Labels;
/// use semel_core::outcome::Outcome;
///
/// let created = Outcome::http(201, [("location", "/orders/7")], "").about("order", "7");
/// assert_eq!(created.labels.resource_id.as_deref(), Some("7"));
/// let refused = Outcome::http(422, [("a", "b")], "").error_code("OUT_OF_STOCK");
/// assert_eq!(refused.labels, Labels { error_code: Some("OUT_OF_STOCK".into()), ..Labels::default() });
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels {
    /// The type of the resource that was created or changed: `order`.
    pub resource_type: Option<Arc<str>>,
    /// Its ID.
    pub resource_id: Option<Arc<str>>,
    /// Why the command was refused, as a code for programs: `OUT_OF_STOCK`.
    pub error_code: Option<Arc<str>>,
}

impl Labels {
    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The heap bytes it uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        let texts = [&self.resource_type, &self.resource_id, &self.error_code];
        texts.into_iter().flatten().map(|text| text.len() + 2 * size_of::<usize>()).sum()
    }
}

/// A label with this text; `None` for an empty one.
pub(crate) fn label(text: &str) -> Option<Arc<str>> {
    let text = &text[..text.floor_char_boundary(LABEL_BYTES_MAX)];
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_cut_between_characters_and_empty_ones_dropped() {
        assert_eq!(label(""), None);
        assert_eq!(label("7").as_deref(), Some("7"));
        let long = format!("{}é", "a".repeat(LABEL_BYTES_MAX - 1));
        assert_eq!(label(&long).as_deref(), Some(&long[..LABEL_BYTES_MAX - 1]));
    }
}
