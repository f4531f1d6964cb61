//! Where the key of a request comes from.

use super::settings::{RouteSettings, RouteSettingsError};
use crate::names;
use http::HeaderName;
use semel::core::fingerprint::Pointer;
use semel::core::key::{Key, Rules};
use serde_json::{Value, json};
use std::fmt;

/// The source of a request's key.
///
/// A key from another source than `Idempotency-Key` was chosen by somebody else: it has 1 to 255 characters, weak or
/// not, and is not passed to the handler in that header. If the source is empty, the request has no key.
///
/// ```
/// use semel::core::fingerprint::Pointer;
/// use semel_http::{KeyRule, KeySource, RouteSettings};
///
/// // A webhook: the event's id, within the account that it is about.
/// let source = KeySource::Composite(vec![
///     KeySource::Pointer(Pointer::parse("/account")?),
///     KeySource::Pointer(Pointer::parse("/event/id")?),
/// ]);
/// let settings = RouteSettings { key: KeyRule::Required, key_source: source, ..RouteSettings::default() };
/// settings.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A header. `Idempotency-Key` follows the settings' [`key_rules`](RouteSettings::key_rules).
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

impl KeySource {
    /// Whether the body has to be read before the key is known.
    pub(crate) fn reads_body(&self) -> bool {
        match self {
            Self::Header(_) => false,
            Self::Pointer(_) | Self::Fingerprint => true,
            Self::Composite(parts) => parts.iter().any(Self::reads_body),
        }
    }

    pub(crate) fn check(&self) -> Result<(), RouteSettingsError> {
        match self {
            Self::Header(name) if names::is_control(name) => Err(RouteSettingsError::KeyHeader),
            Self::Header(_) | Self::Pointer(_) | Self::Fingerprint => Ok(()),
            Self::Composite(parts) => {
                let is_flat = parts.iter().all(|part| !matches!(part, Self::Composite(_)));
                if !is_flat || !(2..=Key::PARTS_MAX).contains(&parts.len()) {
                    return Err(RouteSettingsError::Composite);
                }
                parts.iter().try_for_each(Self::check)
            }
        }
    }

    /// The rules for a key from this source, if it is a text that the client chooses.
    pub(crate) fn rules(&self, settings: &RouteSettings) -> Option<Rules> {
        match self {
            Self::Header(name) if *name == names::KEY => Some(settings.key_rules),
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
