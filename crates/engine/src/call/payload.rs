//! Payloads for callers without a protocol: what has to be equal for two intents to be equal.
//!
//! JSON values and plain bytes. [`semel_core::fingerprint`] computes the fingerprints.

use bytes::Bytes;
use semel_core::fingerprint::{Error, Fingerprint, Limits, Payload, Request, Selection};
use serde::Serialize;
use std::fmt;

/// A value, compared as JSON: the order of members does not matter, numbers count by their value.
///
/// ```
/// use semel::core::fingerprint::{Payload, Selection};
/// use semel::payload::Json;
///
/// let read = |text: &str| Json::of(&serde_json::from_str::<serde_json::Value>(text)?);
/// let (a, b) = (read(r#"{"amount": 5, "to": "x"}"#)?, read(r#"{"to": "x", "amount": 5}"#)?);
/// assert_eq!(a.fingerprint(&Selection::default())?, b.fingerprint(&Selection::default())?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Json(Vec<u8>);

/// Shows the length, never the content.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl Json {
    /// The value's JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(Self)
    }
}

impl Payload for Json {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        let request = Request { content_type: &[b"application/json"], ..Request::new("", "", "", &self.0) };
        // The payload is already in memory, so no limit is needed.
        request.fingerprint(selection, &Limits { decoded_body_bytes_max: usize::MAX })
    }
}

/// Plain bytes, compared byte for byte.
#[derive(Clone)]
pub struct Raw(Bytes);

/// Shows the length, never the content.
impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

impl<B: Into<Bytes>> From<B> for Raw {
    fn from(bytes: B) -> Self {
        Self(bytes.into())
    }
}

impl Payload for Raw {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        let limits = Limits { decoded_body_bytes_max: usize::MAX };
        Request::new("", "", "", &self.0).fingerprint(selection, &limits)
    }
}
