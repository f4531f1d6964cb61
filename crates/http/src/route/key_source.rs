//! The source of a request's key.
//!
//! The sources of keys. No key is generated here, and parts are never joined by a character.

use super::settings::{Terms, TermsError};
use crate::names;
use crate::request::RequestPayload;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::core::fingerprint::json::Scalar;
use semel::core::fingerprint::{self, ErrorKind, Payload, Pointer};
use semel::core::key::{self, Key, Parsed, Rules};
use serde_json::{Value, json};
use std::fmt;

/// The source of a request's key.
///
/// A key from another source than `Idempotency-Key` was chosen by somebody else: it has 1 to 255 characters, weak or
/// not, and is not passed to the handler in that header. If the source is empty, the request has no key.
///
/// ```
/// use semel::core::fingerprint::Pointer;
/// use semel_http::{KeyRule, KeySource, Terms};
///
/// // A webhook: the event's id, within the account that it is about.
/// let source = KeySource::Composite(vec![
///     KeySource::Pointer(Pointer::parse("/account")?),
///     KeySource::Pointer(Pointer::parse("/event/id")?),
/// ]);
/// let terms = Terms { key: KeyRule::Required, key_source: source, ..Terms::default() };
/// terms.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A header. `Idempotency-Key` follows the terms' [`key_rules`](Terms::key_rules).
    Header(HeaderName),
    /// A string or a number in a JSON body; numbers by their canonical text (`1e2` for `100.0`). `null`, a boolean,
    /// an array or an object is refused; a body that is not JSON has no key.
    Pointer(Pointer),
    /// The request's fingerprint: the same payload is the same command. A different fingerprint selection gives
    /// different keys.
    Fingerprint,
    /// A composite of 2 to 16 sources, in order. If one part is absent, there is no key.
    Composite(Vec<Self>),
}

impl Default for KeySource {
    fn default() -> Self {
        Self::Header(names::KEY)
    }
}

/// Why a request has no key.
#[derive(Debug)]
pub(crate) enum NoKey {
    /// The source is empty.
    Absent,
    Invalid(key::Error),
    /// The value is neither a string nor a number.
    NoText,
    /// The body cannot be read.
    Unreadable(fingerprint::Error),
}

impl KeySource {
    /// Whether the body has to be read before the key is known.
    pub(crate) fn reads_body(&self) -> bool {
        match self {
            Self::Header(_) => false,
            Self::Pointer(_) | Self::Fingerprint => true,
            Self::Composite(parts) => parts.iter().any(Self::reads_body),
        }
    }

    pub(crate) fn check(&self) -> Result<(), TermsError> {
        match self {
            Self::Header(name) if names::is_control(name) => Err(TermsError::KeyHeader),
            Self::Header(_) | Self::Pointer(_) | Self::Fingerprint => Ok(()),
            Self::Composite(parts) => {
                let is_flat = parts.iter().all(|part| !matches!(part, Self::Composite(_)));
                if !is_flat || !(2..=Key::PARTS_MAX).contains(&parts.len()) {
                    return Err(TermsError::Composite);
                }
                parts.iter().try_for_each(Self::check)
            }
        }
    }

    /// The key of a request with these headers. `asked` is the request with its body, if that was read.
    pub(crate) fn read(
        &self,
        headers: &HeaderMap,
        payload: Option<&RequestPayload>,
        terms: &Terms,
    ) -> Result<Parsed, NoKey> {
        let plain = |key| Parsed { key, warning: None };
        match self {
            Self::Header(name) => {
                let rules = self.rules(terms).unwrap_or_else(Rules::other_header);
                let lines = headers.get_all(name).iter().map(HeaderValue::as_bytes);
                Key::from_header(lines, &rules).map_err(NoKey::from)
            }
            Self::Pointer(pointer) => {
                let payload = payload.ok_or(NoKey::Absent)?;
                match payload.scalar_at(pointer) {
                    Ok(Scalar::Text(text) | Scalar::Number(text)) => {
                        Key::from_source(&text).map(plain).map_err(NoKey::from)
                    }
                    Ok(Scalar::Unusable) => Err(NoKey::NoText),
                    Ok(Scalar::Absent) => Err(NoKey::Absent),
                    Err(error) if error.kind() == ErrorKind::NotJson => Err(NoKey::Absent),
                    Err(error) => Err(NoKey::Unreadable(error)),
                }
            }
            Self::Fingerprint => {
                let payload = payload.ok_or(NoKey::Absent)?;
                let print = payload.fingerprint(&terms.policy.selection).map_err(NoKey::Unreadable)?;
                Ok(plain(Key::from_fingerprint(print)))
            }
            Self::Composite(parts) => {
                let read = parts.iter().map(|part| part.read(headers, payload, terms));
                let parts = read.collect::<Result<Vec<Parsed>, NoKey>>()?;
                let warning = parts.iter().find_map(|part| part.warning);
                let key = Key::composite(parts.into_iter().map(|part| part.key))?;
                Ok(Parsed { key, warning })
            }
        }
    }

    /// The rules for a key from this source, if it is a text that the client chooses.
    pub(crate) fn rules(&self, terms: &Terms) -> Option<Rules> {
        match self {
            Self::Header(name) if *name == names::KEY => Some(terms.key_rules),
            Self::Header(_) | Self::Pointer(_) => Some(Rules::other_header()),
            Self::Fingerprint | Self::Composite(_) => None,
        }
    }

    /// The form in the published specification.
    pub(crate) fn described(&self) -> Value {
        match self {
            Self::Header(name) => json!({ "header": name.as_str() }),
            Self::Pointer(pointer) => json!({ "pointer": pointer.to_string() }),
            Self::Fingerprint => json!("fingerprint"),
            Self::Composite(parts) => parts.iter().map(Self::described).collect(),
        }
    }
}

/// The source, for use in a sentence.
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "the header {name}"),
            Self::Pointer(pointer) => write!(f, "the JSON body at {pointer}"),
            Self::Fingerprint => f.write_str("the request's fingerprint"),
            Self::Composite(parts) => {
                let parts: Vec<_> = parts.iter().map(Self::to_string).collect();
                f.write_str(&parts.join(" and "))
            }
        }
    }
}

impl From<key::Error> for NoKey {
    fn from(error: key::Error) -> Self {
        match error {
            key::Error::Missing => Self::Absent,
            error => Self::Invalid(error),
        }
    }
}
