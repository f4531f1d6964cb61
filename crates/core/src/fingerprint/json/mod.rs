//! JSON bodies, compared by meaning instead of spelling.
//!
//! The lexer passes over the body twice and never builds a tree. The first pass checks and sorts, the second writes. No
//! floating point is used. A body that two parsers could understand differently is refused.
//!
//! The canonical text has no white space. Members are sorted by the UTF-8 bytes of their names, strings have only the
//! escapes they need, and numbers are sign, digits and exponent by exact decimal value. Duplicate members, lone
//! surrogates, invalid UTF-8 and more than 128 nested arrays and objects are refused. At most twice the size of the
//! body is allocated.

mod check;
mod emit;
mod find;
mod number;
mod string;

use super::error::{Error, ErrorKind};
use super::pointer::Pointer;
use super::sink::Sink;
use emit::Emitter;
use std::fmt;

/// The deepest nesting of arrays and objects.
const DEPTH_MAX: usize = 128;

const SUBJECT: &str = "JSON body";

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
struct Problem(&'static str, usize);

/// The canonical text of a JSON document: two documents have the same canonical text exactly if they mean the same.
///
/// ```
/// use semel_core::fingerprint::json;
///
/// let text = json::canonical(br#" { "b": 10.50, "a": "\u0041/", "c": [1e2, -0] } "#)?;
/// assert_eq!(text, r#"{"a":"A/","b":105e-1,"c":[1e2,0]}"#);
/// # Ok::<(), semel_core::fingerprint::Error>(())
/// ```
pub fn canonical(body: &[u8]) -> Result<String, Error> {
    let mut text = Vec::with_capacity(body.len());
    write(body, &ParsedPointers::default(), &mut text)?;
    // Canonical text consists of parts of a body that is valid UTF-8.
    String::from_utf8(text).map_err(|_| Error::new(ErrorKind::Malformed, SUBJECT, "invalid UTF-8"))
}

/// The value at one place of a JSON body, for use in a key.
///
/// Strings and numbers are distinguished, so that `100` and `"1e2"` are different keys. Debug output shows only the
/// length, because the value may become a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Scalar {
    /// No value.
    Absent,
    /// `null`, a boolean, an array or an object: not usable in a key.
    Unusable,
    /// A string, unescaped.
    Text(String),
    /// A number, by its canonical text: `1e2` for `100`.
    Number(String),
}

impl fmt::Debug for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("Absent"),
            Self::Unusable => f.write_str("Unusable"),
            Self::Text(text) => write!(f, "Text({} characters)", text.chars().count()),
            Self::Number(text) => write!(f, "Number({} characters)", text.chars().count()),
        }
    }
}

/// The value at the place that `pointer` names.
///
/// The whole body is checked, so a body that cannot be fingerprinted has no scalars either.
///
/// ```
/// use semel_core::fingerprint::{Pointer, json::{self, Scalar}};
///
/// let body = br#"{"event":{"id":"evt_\u0031"},"n":1.50}"#;
/// let at = |text| json::scalar_at(body, &Pointer::parse(text).unwrap());
/// assert_eq!(at("/event/id")?, Scalar::Text("evt_1".into()));
/// assert_eq!(at("/n")?, Scalar::Number("15e-1".into()));
/// assert_eq!(at("/event")?, Scalar::Unusable);
/// assert_eq!(at("/event/at")?, Scalar::Absent);
/// # Ok::<(), semel_core::fingerprint::Error>(())
/// ```
pub fn scalar_at(body: &[u8], pointer: &Pointer) -> Result<Scalar, Error> {
    check::check(body)?;
    let Some(at) = find::find(body, pointer) else { return Ok(Scalar::Absent) };
    Ok(match body[at] {
        b'"' => Scalar::Text(string::text(body, at)),
        b'-' | b'0'..=b'9' => {
            let mut text = Vec::new();
            number::write(body, at, &mut text);
            Scalar::Number(text.into_iter().map(char::from).collect())
        }
        _ => Scalar::Unusable,
    })
}

/// The parsed pointers of a selection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct ParsedPointers {
    /// Sorted by the bytes of their text.
    pub(super) include: Vec<Pointer>,
    /// Sorted step by step.
    pub(super) exclude: Vec<Pointer>,
}

/// Writes the selected part of a body: the canonical text or, if pointers are included, one object with each pointer
/// and its value, or the word `absent`, which is not a JSON value.
pub(super) fn write<S: Sink>(body: &[u8], pointers: &ParsedPointers, sink: &mut S) -> Result<(), Error> {
    let order = check::check(body)?;
    if pointers.include.is_empty() {
        Emitter::new(body, &order, &pointers.exclude, sink).document();
        return Ok(());
    }
    for (number, pointer) in pointers.include.iter().enumerate() {
        sink.push(if number == 0 { b'{' } else { b',' });
        string::quote(&pointer.to_string(), sink);
        sink.push(b':');
        if !Emitter::new(body, &order, &pointers.exclude, sink).value_at(pointer) {
            sink.write(b"absent");
        }
    }
    sink.push(b'}');
    Ok(())
}
