//! Why a key was refused.
//!
//! One enum, with a sentence for the client and a stable name for tests and clients in other languages. Errors contain
//! lengths, but no part of the key.

use std::fmt;

use super::Weakness;

/// Why a key was refused. `Display` is a sentence for clients, and never quotes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No key was sent. Every other variant means that a key was sent and is invalid.
    Missing,
    /// A key was sent, and it is empty.
    Empty,
    /// The header has several lines; it is not clear which one counts.
    SeveralLines,
    /// One line has a list of keys.
    SeveralKeys,
    /// The key has structured-field parameters (`"…";name=value`).
    Parameters,
    /// An opening quote without a closing one.
    Unterminated,
    /// A backslash inside quotes that does not precede a quote or a backslash.
    BadEscape,
    /// Something other than a parameter or a list follows the closing quote.
    TrailingText,
    /// A bare key contains `,` `;` `"` or `\`, which need the quoted form.
    NeedsQuotes,
    /// A byte outside ASCII.
    NonAscii,
    /// A control character.
    Control,
    /// A space or tab inside the key.
    Space,
    /// Fewer characters than the rules require.
    TooShort {
        /// How many characters the key has.
        length: usize,
        /// The minimum.
        min: usize,
    },
    /// More characters than the rules allow.
    TooLong {
        /// How many characters the key has.
        length: usize,
        /// The maximum.
        max: usize,
    },
    /// The key is weak, and the rules refuse weak keys.
    Weak(Weakness),
    /// A composite of fewer than 2 or more than 16 keys, or of keys that are composite themselves.
    Composite,
}

impl Error {
    /// A stable name, used in the test vectors under `vectors/keys/`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Empty => "empty",
            Self::SeveralLines => "several-lines",
            Self::SeveralKeys => "several-keys",
            Self::Parameters => "parameters",
            Self::Unterminated => "unterminated",
            Self::BadEscape => "bad-escape",
            Self::TrailingText => "trailing-text",
            Self::NeedsQuotes => "needs-quotes",
            Self::NonAscii => "non-ascii",
            Self::Control => "control",
            Self::Space => "space",
            Self::TooShort { .. } => "too-short",
            Self::TooLong { .. } => "too-long",
            Self::Weak(weakness) => weakness.name(),
            Self::Composite => "composite",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => {
                f.write_str("This operation requires an idempotency key, and the request has none.")
            }
            Self::Empty => {
                f.write_str("The idempotency key is empty; send a new random one, such as a UUID.")
            }
            Self::SeveralLines => {
                f.write_str("The idempotency key was sent on several header lines; send one.")
            }
            Self::SeveralKeys => f.write_str("The header lists several idempotency keys; send one."),
            Self::Parameters => f.write_str("The idempotency key has parameters; send only the key."),
            Self::Unterminated => f.write_str("The idempotency key opens with a quote that is never closed."),
            Self::BadEscape => f.write_str(
                "In a quoted idempotency key, a backslash must be followed by a quote or a backslash.",
            ),
            Self::TrailingText => f.write_str("Something follows the closing quote of the idempotency key."),
            Self::NeedsQuotes => f.write_str(
                "An idempotency key with a comma, semicolon, quote or backslash must be sent in quotes.",
            ),
            Self::NonAscii => f.write_str("The idempotency key contains a non-ASCII character."),
            Self::Control => f.write_str("The idempotency key contains a control character."),
            Self::Space => f.write_str("The idempotency key contains a space."),
            Self::TooShort { length, min } => {
                write!(f, "The idempotency key has {length} characters; at least {min} are required.")
            }
            Self::TooLong { length, max } => {
                write!(f, "The idempotency key has {length} characters; at most {max} are allowed.")
            }
            Self::Weak(weakness) => {
                write!(f, "{weakness}; use a new random key for every operation, such as a UUID.")
            }
            Self::Composite => {
                f.write_str("A composite idempotency key must join 2 to 16 keys that are not composite.")
            }
        }
    }
}

impl std::error::Error for Error {}
