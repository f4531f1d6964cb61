//! JSON bodies, by what they say rather than how they are spelled.
//!
//! What lives here: a lexer of our own that passes over the body twice and never builds a tree. The first pass
//! checks and sorts, the second writes. What must never: floating point, or an answer for a body that two readers
//! could understand differently.
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
use super::selection::Selection;
use super::sink::Sink;
use emit::Emitter;

/// How many arrays and objects may stand inside one another.
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
    write(body, &Selected::everything(), &mut text)?;
    // Canonical text is put together from parts of a body that was checked to be UTF-8.
    String::from_utf8(text).map_err(|_| Error::new(ErrorKind::Malformed, SUBJECT, "this is not UTF-8"))
}

/// The string or number that `pointer` names: a string by what it spells, a number by its canonical text.
///
/// `None` where the place is absent or holds anything else (`null`, a truth value, an array, an object): such a
/// place has no one text to make a key of. The whole body is checked, so a body that cannot be fingerprinted has
/// no scalars either.
///
/// ```
/// use semel_core::fingerprint::json;
///
/// let body = br#"{"event":{"id":"evt_\u0031"},"n":1.50}"#;
/// assert_eq!(json::scalar_at(body, "/event/id")?.as_deref(), Some("evt_1"));
/// assert_eq!(json::scalar_at(body, "/n")?.as_deref(), Some("15e-1"));
/// assert_eq!(json::scalar_at(body, "/event")?, None);
/// # Ok::<(), semel_core::fingerprint::Error>(())
/// ```
pub fn scalar_at(body: &[u8], pointer: &str) -> Result<Option<String>, Error> {
    let pointer = parse(pointer)?;
    check::check(body)?;
    let Some(at) = find::find(body, &pointer) else { return Ok(None) };
    Ok(match body[at] {
        b'"' => Some(string::text(body, at)),
        b'-' | b'0'..=b'9' => {
            let mut text = Vec::new();
            number::write(body, at, &mut text);
            String::from_utf8(text).ok()
        }
        _ => None,
    })
}

/// The pointers of a selection, taken apart.
pub(super) struct Selected {
    include: Vec<(String, Pointer)>,
    exclude: Vec<Pointer>,
}

impl Selected {
    fn everything() -> Self {
        Self { include: Vec::new(), exclude: Vec::new() }
    }

    pub(super) fn by(selection: &Selection) -> Result<Self, Error> {
        let include = selection.include().iter().map(|text| Ok((text.clone(), parse(text)?)));
        let mut exclude =
            selection.exclude().iter().map(|text| parse(text)).collect::<Result<Vec<_>, _>>()?;
        exclude.sort_unstable();
        Ok(Self { include: include.collect::<Result<_, _>>()?, exclude })
    }
}

fn parse(pointer: &str) -> Result<Pointer, Error> {
    Pointer::parse(pointer).map_err(|problem| Error::new(ErrorKind::InvalidPointer, "JSON pointer", problem))
}

/// Writes what is selected of a body: the canonical text, or, where places are included, one object that names
/// each of them with its value or with the bare word `absent`, which no JSON value is.
pub(super) fn write<S: Sink>(body: &[u8], selected: &Selected, sink: &mut S) -> Result<(), Error> {
    let order = check::check(body)?;
    if selected.include.is_empty() {
        Emitter::new(body, &order, &selected.exclude, sink).document();
        return Ok(());
    }
    for (number, (text, pointer)) in selected.include.iter().enumerate() {
        sink.push(if number == 0 { b'{' } else { b',' });
        string::quote(text, sink);
        sink.push(b':');
        if !Emitter::new(body, &order, &selected.exclude, sink).place(pointer) {
            sink.write(b"absent");
        }
    }
    sink.push(b'}');
    Ok(())
}
