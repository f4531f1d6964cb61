//! The key of a request, read from the source that its route names.
//!
//! No key is generated here, and parts are never joined by a character.

use super::payload::RequestPayload;
use crate::route::{KeySource, RouteSettings};
use http::{HeaderMap, HeaderValue};
use semel::core::fingerprint::json::Scalar;
use semel::core::fingerprint::{self, ErrorKind, Payload};
use semel::core::key::{self, Key, Parsed, Rules};

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

impl From<key::Error> for NoKey {
    fn from(error: key::Error) -> Self {
        match error {
            key::Error::Missing => Self::Absent,
            error => Self::Invalid(error),
        }
    }
}

impl KeySource {
    /// The key of a request with these headers. `asked` is the request with its body, if that was read.
    pub(crate) fn read(
        &self,
        headers: &HeaderMap,
        payload: Option<&RequestPayload>,
        settings: &RouteSettings,
    ) -> Result<Parsed, NoKey> {
        let plain = |key| Parsed { key, warning: None };
        match self {
            Self::Header(name) => {
                let rules = self.rules(settings).unwrap_or_else(Rules::other_header);
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
                let print = payload.fingerprint(&settings.policy.selection).map_err(NoKey::Unreadable)?;
                Ok(plain(Key::from_fingerprint(print)))
            }
            Self::Composite(parts) => {
                let read = parts.iter().map(|part| part.read(headers, payload, settings));
                let parts = read.collect::<Result<Vec<Parsed>, NoKey>>()?;
                let warning = parts.iter().find_map(|part| part.warning);
                let key = Key::composite(parts.into_iter().map(|part| part.key))?;
                Ok(Parsed { key, warning })
            }
        }
    }
}
