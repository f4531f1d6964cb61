//! The two forms of a key in a header line: bare, and as a structured-field String (RFC 9651, RFC 8941).
//!
//! Both forms are read to the same key, and the shortest form that reads back is written. Nothing is guessed: an
//! ambiguous line is refused.

use std::borrow::Cow;

use super::{Error, Key, Kind, Parsed, Rules};

impl Key {
    /// Reads a key from all lines of its header, as raw bytes.
    ///
    /// White space around the value is dropped, quotes and escapes are undone, and only then characters are counted:
    /// `"abc"` and `abc` are one key. No lines is [`Error::Missing`]; an empty value is [`Error::Empty`]; several
    /// lines are refused even if they are equal. Bytes are checked from left to right and the first problem is
    /// reported; then length, then weakness.
    ///
    /// For a header other than `Idempotency-Key` pass [`Rules::other_header`].
    ///
    /// ```
    /// use semel_core::key::{Error, Key, Rules};
    ///
    /// let rules = Rules::default();
    /// let parsed = Key::from_header([br#" "order,1234;charge" "#.as_slice()], &rules)?;
    /// assert_eq!(parsed.key.expose(), "order,1234;charge");
    /// assert_eq!(Key::from_header([], &rules), Err(Error::Missing));
    /// assert_eq!(Key::from_header([b"".as_slice()], &rules), Err(Error::Empty));
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_header<'a>(
        lines: impl IntoIterator<Item = &'a [u8]>,
        rules: &Rules,
    ) -> Result<Parsed, Error> {
        let mut lines = lines.into_iter();
        let line = lines.next().ok_or(Error::Missing)?;
        if lines.next().is_some() {
            return Err(Error::SeveralLines);
        }
        let text = match trim(line) {
            [b'"', quoted @ ..] => Cow::Owned(unquote(quoted)?),
            bare => Cow::Borrowed(read_bare(bare)?),
        };
        Self::from_text(&text, rules)
    }

    /// The key as a header value: bare if possible, otherwise in quotes.
    ///
    /// The result reads back to an equal key, if the rules allow its length. `None` for keys that no header value can
    /// carry: text with spaces or non-ASCII characters, fingerprints and composites.
    ///
    /// ```
    /// use semel_core::key::{Key, Rules};
    ///
    /// let written = |text| Key::from_text(text, &Rules::default()).unwrap().key.to_header();
    /// assert_eq!(written("order:1234:charge").as_deref(), Some("order:1234:charge"));
    /// assert_eq!(written("order,1234,charge").as_deref(), Some("\"order,1234,charge\""));
    /// ```
    pub fn to_header(&self) -> Option<String> {
        let Kind::Text(text) = &self.0 else { return None };
        if text.bytes().any(|byte| visible(byte).is_err()) {
            return None;
        }
        if !text.bytes().any(needs_quotes) {
            return Some(text.to_string());
        }
        let mut quoted = String::with_capacity(text.len() + 4);
        quoted.push('"');
        for char in text.chars() {
            if matches!(char, '"' | '\\') {
                quoted.push('\\');
            }
            quoted.push(char);
        }
        quoted.push('"');
        Some(quoted)
    }
}

/// Rejects everything except visible ASCII.
pub(super) fn visible(byte: u8) -> Result<(), Error> {
    match byte {
        b'!'..=b'~' => Ok(()),
        b' ' | b'\t' => Err(Error::Space),
        0x80.. => Err(Error::NonAscii),
        _ => Err(Error::Control),
    }
}

/// The visible characters with a meaning in lists, parameters or strings.
fn needs_quotes(byte: u8) -> bool {
    matches!(byte, b',' | b';' | b'"' | b'\\')
}

/// Removes HTTP's optional white space at both ends.
fn trim(mut line: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = line {
        line = rest;
    }
    line
}

fn read_bare(line: &[u8]) -> Result<&str, Error> {
    for &byte in line {
        visible(byte)?;
        if needs_quotes(byte) {
            return Err(Error::NeedsQuotes);
        }
    }
    str::from_utf8(line).map_err(|_| Error::NonAscii)
}

/// Reads from after the opening quote to the end of the line.
fn unquote(line: &[u8]) -> Result<String, Error> {
    let mut text = String::with_capacity(line.len());
    let mut bytes = line.iter();
    loop {
        match bytes.next().ok_or(Error::Unterminated)? {
            b'"' => break,
            b'\\' => match bytes.next().ok_or(Error::Unterminated)? {
                &byte @ (b'"' | b'\\') => text.push(char::from(byte)),
                _ => return Err(Error::BadEscape),
            },
            &byte => {
                visible(byte)?;
                text.push(char::from(byte));
            }
        }
    }
    match trim(bytes.as_slice()).first() {
        None => Ok(text),
        Some(b';') => Err(Error::Parameters),
        Some(b',') => Err(Error::SeveralKeys),
        Some(_) => Err(Error::TrailingText),
    }
}
