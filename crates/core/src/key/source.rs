//! Keys from other sources: IDs found in a message, fingerprints, and composites.
//!
//! The length and weakness [`Rules`] do not apply, because somebody else chose these IDs. Parts are never joined with a
//! delimiter.
//!
//! [`Rules`]: super::Rules

use std::sync::Arc;

use super::{Error, Key, Kind};
use crate::fingerprint::Fingerprint;

impl Key {
    /// The most characters of text from another source.
    pub const SOURCE_MAX: usize = 255;
    /// The most keys in a composite.
    pub const PARTS_MAX: usize = 16;

    /// A key found in a message: a webhook's id, the value behind a JSON pointer.
    ///
    /// Any Unicode text of 1 to 255 characters (code points, not bytes) without control characters. It is used
    /// exactly as it is: not trimmed, not normalised. Visible ASCII text gives the same key as a header with that
    /// text.
    ///
    /// The minimum of 16 characters and the refusal of weak keys are for the header `Idempotency-Key`, because clients
    /// choose that text freely. A text from your own data, such as an order's number, is as unique as that data.
    /// [`from_text`](Self::from_text) applies the header's rules.
    ///
    /// ```
    /// use semel_core::key::{Error, Key};
    ///
    /// assert_eq!(Key::from_source("заказ 1").unwrap().expose(), "заказ 1");
    /// assert_eq!(Key::from_source(""), Err(Error::Empty));
    /// assert_eq!(Key::from_source("a\nb"), Err(Error::Control));
    /// ```
    pub fn from_source(text: &str) -> Result<Self, Error> {
        let length = text.chars().count();
        if length == 0 {
            return Err(Error::Empty);
        }
        if length > Self::SOURCE_MAX {
            return Err(Error::TooLong { length, max: Self::SOURCE_MAX });
        }
        if text.chars().any(char::is_control) {
            return Err(Error::Control);
        }
        Ok(Self(Kind::Text(text.into())))
    }

    /// The request's fingerprint as its key: the same payload is then the same command.
    ///
    /// Never equal to a text key, not even to one with the fingerprint's digits.
    pub const fn from_fingerprint(fingerprint: Fingerprint) -> Self {
        Self(Kind::Fingerprint(fingerprint))
    }

    /// Several keys as one, in order.
    ///
    /// Two composites are equal exactly when they have equal parts in the same order; no text in one part can imitate
    /// the boundary to the next. 2 to 16 parts, none of them composite.
    ///
    /// ```
    /// use semel_core::key::Key;
    ///
    /// let pair = |a, b| Key::composite([Key::from_source(a)?, Key::from_source(b)?]);
    /// assert_ne!(pair("a", "b:c")?, pair("a:b", "c")?);
    /// # Ok::<(), semel_core::key::Error>(())
    /// ```
    pub fn composite(parts: impl IntoIterator<Item = Self>) -> Result<Self, Error> {
        // One more than allowed is enough to detect too many.
        let parts: Arc<[Self]> = parts.into_iter().take(Self::PARTS_MAX + 1).collect();
        let flat = parts.iter().all(|part| !matches!(part.0, Kind::Composite(_)));
        if !flat || !(2..=Self::PARTS_MAX).contains(&parts.len()) {
            return Err(Error::Composite);
        }
        Ok(Self(Kind::Composite(parts)))
    }
}
