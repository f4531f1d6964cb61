//! Keys: the name that a client gives to one operation, so that every retry is recognised.
//!
//! The validated [`Key`], its forms in a header ([`Key::from_header`], [`Key::to_header`]), its [`Rules`], keys from
//! other sources, and [`mint`] to generate keys. [`scope`](crate::scope) hashes keys. No raw key appears in debug
//! output or in an error.

mod error;
mod header;
pub mod mint;
mod rules;
mod source;
mod weak;

pub use error::Error;
pub use rules::{Rules, RulesError, Treatment};
pub use weak::Weakness;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crate::encoding::Sink;
use crate::fingerprint::Fingerprint;

/// An idempotency key, valid by construction.
///
/// A key is one of three things: text (sent by a client, or found in a webhook id, a JSON member, …), the fingerprint
/// of the request, or several of those together. Two keys are equal if they have the same kind and content. Text is
/// compared by code point: case counts and nothing is normalised.
///
/// Debug output shows the kind and the length, never the content.
///
/// ```
/// use semel_core::key::{Key, Rules};
///
/// let rules = Rules::default();
/// let bare = Key::from_header([b"8e03978e-40d5-43dd-bc93-6894a57f9324".as_slice()], &rules)?;
/// let quoted = Key::from_header([b"\"8e03978e-40d5-43dd-bc93-6894a57f9324\"".as_slice()], &rules)?;
/// assert_eq!(bare.key, quoted.key);
/// assert_eq!(format!("{:?}", bare.key), "Key(36 characters)");
/// # Ok::<(), semel_core::key::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Kind);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Kind {
    Text(Arc<str>),
    Fingerprint(Fingerprint),
    /// At least two, none of them composite: flat, so that nothing recurses.
    Composite(Arc<[Key]>),
}

/// A key that passed the [`Rules`], with a warning if it is weak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The key.
    pub key: Key,
    /// Why the key is weak. Only with [`Treatment::Warn`].
    pub warning: Option<Weakness>,
}

impl Key {
    /// A key from plain text: from a command line or a function's argument.
    ///
    /// The same rules for characters, length and weakness apply as in a header, but nothing is unquoted or trimmed:
    /// the text *is* the key, and `,` `;` `"` `\` are ordinary characters. (For IDs that others chose, such as a
    /// webhook's in a JSON member, looser rules apply: [`from_source`](Self::from_source).)
    pub fn from_text(text: &str, rules: &Rules) -> Result<Parsed, Error> {
        text.bytes().try_for_each(header::visible)?;
        let warning = rules.judge(text)?;
        Ok(Parsed { key: Self(Kind::Text(text.into())), warning })
    }

    /// The content, for code that has to store or send the raw key.
    ///
    /// Text as it is, a fingerprint as 64 hexadecimal digits, a composite as its parts in brackets. For people: keys
    /// of different kinds may have the same text, so never compare or hash it. Do not log it.
    pub fn expose(&self) -> Cow<'_, str> {
        match &self.0 {
            Kind::Text(text) => Cow::Borrowed(text),
            Kind::Fingerprint(print) => Cow::Owned(hex::encode(print.as_bytes())),
            Kind::Composite(parts) => {
                let parts: Vec<_> = parts.iter().map(Self::expose).collect();
                Cow::Owned(format!("[{}]", parts.join(", ")))
            }
        }
    }

    /// Encodes the key unambiguously: a kind, then length-prefixed content.
    pub(crate) fn encode(&self, out: &mut impl Sink) {
        match &self.0 {
            Kind::Text(text) => {
                out.tag(1);
                out.field(text.as_bytes());
            }
            Kind::Fingerprint(print) => {
                out.tag(2);
                out.field(print.as_bytes());
            }
            Kind::Composite(parts) => {
                out.tag(3);
                out.count(parts.len());
                for part in parts.iter() {
                    part.encode(out);
                }
            }
        }
    }
}

/// The kind and the length only.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Text(text) => write!(f, "Key({} characters)", text.chars().count()),
            Kind::Fingerprint(_) => f.write_str("Key(fingerprint)"),
            Kind::Composite(parts) => write!(f, "Key(composite of {})", parts.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_exposes_no_kind_of_key() {
        let text = Key::from_source("wh_1").unwrap();
        let print = Key::from_fingerprint(Fingerprint::from_bytes([0xab; 32]));
        let both = Key::composite([text.clone(), print.clone()]).unwrap();
        assert_eq!(text.expose(), "wh_1");
        assert_eq!(print.expose(), "ab".repeat(32));
        assert_eq!(both.expose(), format!("[wh_1, {}]", "ab".repeat(32)));
        assert_eq!(
            format!("{text:?} {print:?} {both:?}"),
            "Key(4 characters) Key(fingerprint) Key(composite of 2)"
        );
    }

    #[test]
    fn plain_text_is_taken_as_it_is() {
        let quoted = r#""16-characters-16""#;
        assert_eq!(Key::from_text(quoted, &Rules::default()).unwrap().key.expose(), quoted);
        assert_eq!(Key::from_text(" 16-characters-16", &Rules::default()), Err(Error::Space));
        assert_eq!(Key::from_text("", &Rules::default()), Err(Error::Empty));
    }
}
