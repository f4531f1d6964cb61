//! Where two canonical bodies differ. Two bodies are the same if and only if their canonical forms are.

use semel_text::printable::printable;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

/// The maximum number of differences.
pub const PLACES_MAX: usize = 20;

/// A difference between two bodies. Debug output shows where, not what.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    /// A JSON pointer, or the number of the first byte that differs.
    pub at: DiffPath,
    /// The value in the first body; none if it is missing.
    pub first: Option<String>,
    /// The value in the second body.
    pub second: Option<String>,
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |text: &Option<String>| text.as_ref().map(String::len);
        f.debug_struct("Difference")
            .field("at", &self.at)
            .field("first_bytes", &bytes(&self.first))
            .field("second_bytes", &bytes(&self.second))
            .finish()
    }
}

/// Where two bodies differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiffPath {
    /// A JSON pointer.
    Pointer(String),
    /// The first byte that differs.
    Byte(usize),
}

impl fmt::Display for DiffPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pointer(pointer) if pointer.is_empty() => f.write_str("the whole body"),
            Self::Pointer(pointer) => f.write_str(pointer),
            Self::Byte(at) => write!(f, "byte {at}"),
        }
    }
}

/// The differences between two canonical bodies, at most [`PLACES_MAX`]. Empty if they are equal.
pub fn differences(first: &[u8], second: &[u8]) -> Vec<Difference> {
    let mut found = Vec::new();
    if first == second {
        return found;
    }
    if let (Ok(one), Ok(other)) = (serde_json::from_slice(first), serde_json::from_slice(second)) {
        walk(&mut String::new(), one, other, &mut found);
        return found;
    }
    let at = first.iter().zip(second).take_while(|(one, other)| one == other).count();
    let around = |body: &[u8]| body.get(at..).map(|rest| excerpt(&String::from_utf8_lossy(rest)));
    found.push(Difference { at: DiffPath::Byte(at), first: around(first), second: around(second) });
    found
}

/// Descends into both, and reports what only one has. Depth is bounded, because canonical bodies are.
fn walk(pointer: &mut String, first: &RawValue, second: &RawValue, found: &mut Vec<Difference>) {
    if first.get() == second.get() || found.len() == PLACES_MAX {
        return;
    }
    let (one, other) = (Parts::of(first), Parts::of(second));
    let (Some(one), Some(other)) = (one, other) else {
        return found.push(difference(pointer, Some(first), Some(second)));
    };
    let names = match (&one, &other) {
        (Parts::Object(one), Parts::Object(other)) => {
            let mut names: Vec<_> = one.keys().chain(other.keys()).cloned().collect();
            names.sort_unstable();
            names.dedup();
            names
        }
        (Parts::Array(one), Parts::Array(other)) => {
            (0..one.len().max(other.len())).map(|index| index.to_string()).collect()
        }
        _ => return found.push(difference(pointer, Some(first), Some(second))),
    };
    for name in names {
        let above = pointer.len();
        pointer.push('/');
        pointer.push_str(&name.replace('~', "~0").replace('/', "~1"));
        match (one.get(&name), other.get(&name)) {
            (Some(first), Some(second)) => walk(pointer, first, second, found),
            (first, second) if found.len() < PLACES_MAX => found.push(difference(pointer, first, second)),
            _ => {}
        }
        pointer.truncate(above);
    }
}

enum Parts<'a> {
    Object(BTreeMap<String, &'a RawValue>),
    Array(Vec<&'a RawValue>),
}

impl<'a> Parts<'a> {
    fn of(value: &'a RawValue) -> Option<Self> {
        match value.get().as_bytes().first()? {
            b'{' => serde_json::from_str(value.get()).ok().map(Self::Object),
            b'[' => serde_json::from_str(value.get()).ok().map(Self::Array),
            _ => None,
        }
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        match self {
            Self::Object(members) => members.get(name).copied(),
            Self::Array(items) => items.get(name.parse::<usize>().ok()?).copied(),
        }
    }
}

fn difference(pointer: &str, first: Option<&RawValue>, second: Option<&RawValue>) -> Difference {
    let shown = |value: Option<&RawValue>| value.map(|value| excerpt(value.get()));
    Difference { at: DiffPath::Pointer(pointer.to_owned()), first: shown(first), second: shown(second) }
}

fn excerpt(text: &str) -> String {
    const LETTERS_MAX: usize = 60;
    let mut letters = text.chars();
    let short = printable(&letters.by_ref().take(LETTERS_MAX).collect::<String>());
    if letters.next().is_some() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointers(first: &str, second: &str) -> Vec<String> {
        differences(first.as_bytes(), second.as_bytes())
            .iter()
            .map(|difference| difference.at.to_string())
            .collect()
    }

    #[test]
    fn json_bodies_differ_at_pointers() {
        assert!(pointers(r#"{"a":1}"#, r#"{"a":1}"#).is_empty());
        assert_eq!(pointers(r#"{"a":1,"b":[1,2]}"#, r#"{"a":1,"b":[1,3]}"#), ["/b/1"]);
        assert_eq!(pointers(r#"{"a/b":1}"#, r#"{"a/b":2}"#), ["/a~1b"]);
        assert_eq!(pointers(r#"{"a":null}"#, "{}"), ["/a"]);
        assert_eq!(pointers("[1]", r#"{"0":1}"#), ["the whole body"]);
        assert_eq!(pointers("9007199254740993", "9007199254740992"), ["the whole body"]);
    }

    #[test]
    fn a_missing_member_is_not_null() {
        let found = differences(br#"{"a":null}"#, b"{}");
        assert_eq!((found[0].first.as_deref(), found[0].second.as_deref()), (Some("null"), None));
    }

    #[test]
    fn other_bodies_differ_at_a_byte() {
        assert_eq!(pointers("a=1&b=2", "a=1&b=3"), ["byte 6"]);
        assert_eq!(pointers("a=1", "a=1&b=3"), ["byte 3"]);
    }

    #[test]
    fn a_long_list_is_cut() {
        let list = |digit: &str| format!("[{}]", vec![digit; 100].join(","));
        assert_eq!(pointers(&list("1"), &list("2")).len(), PLACES_MAX);
    }
}
