//! JSON bodies, by what they say rather than how they are spelled.
//!
//! Contents: a lexer of our own that passes over the body twice and never builds a tree. The first pass checks and
//! sorts, the second writes. Never here: floating point, or an answer for a body that two readers could understand
//! differently.
//!
//! The canonical text has no white space; members by the UTF-8 bytes of their names; strings with only the
//! escapes they need; and numbers as sign, digits and exponent, by exact decimal value. Members that occur twice,
//! lone surrogates, anything that is not UTF-8, and more than 128 arrays and objects inside one another are
//! refused. Beside the body, at most twice its size is ever allocated.

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

/// How many arrays and objects may be inside one another.
const DEPTH_MAX: usize = 128;

const SUBJECT: &str = "JSON body";

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
struct Problem(&'static str, usize);

/// The canonical text of a JSON document: equal for two documents exactly when they say the same.
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
    write(body, &Places::default(), &mut text)?;
    // Canonical text is put together from parts of a body that was checked to be UTF-8.
    String::from_utf8(text).map_err(|_| Error::new(ErrorKind::Malformed, SUBJECT, "this is not UTF-8"))
}

/// What is at one place of a JSON body, as far as a key can be made of it.
///
/// A string and a number are distinguished, so that `100` and `"1e2"` do not become one key. Debug output shows how
/// long it is, never what it is: it may become a key.
#[derive(Clone, PartialEq, Eq)]
pub enum Scalar {
    /// Nothing is there.
    Absent,
    /// `null`, a truth value, an array or an object: no one text to make a key of.
    Unusable,
    /// A string, by what it spells.
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

/// What is at the place that `pointer` names.
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

/// The pointers of a selection, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Places {
    /// By the bytes of their text.
    pub(super) include: Vec<Pointer>,
    /// Step by step.
    pub(super) exclude: Vec<Pointer>,
}

/// Writes what is selected of a body: the canonical text, or, where places are included, one object that names
/// each of them with its value or with the bare word `absent`, which no JSON value is.
pub(super) fn write<S: Sink>(body: &[u8], places: &Places, sink: &mut S) -> Result<(), Error> {
    let order = check::check(body)?;
    if places.include.is_empty() {
        Emitter::new(body, &order, &places.exclude, sink).document();
        return Ok(());
    }
    for (number, pointer) in places.include.iter().enumerate() {
        sink.push(if number == 0 { b'{' } else { b',' });
        string::quote(&pointer.to_string(), sink);
        sink.push(b':');
        if !Emitter::new(body, &order, &places.exclude, sink).place(pointer) {
            sink.write(b"absent");
        }
    }
    sink.push(b'}');
    Ok(())
}
