//! Why a key was refused.
//!
//! Contents: one enum, with a sentence for the client and a stable name for tests and clients in other languages.
//! Never here: any part of the key. Lengths are all that an error may tell.

use std::fmt;

use super::Weakness;

/// Why a key was refused. `Display` is a sentence fit for a client, and never quotes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No key was sent at all. Every other variant means: one was sent, and it is invalid.
    Missing,
    /// A key was sent, and it is the empty text.
    Empty,
    /// The header came on more than one line; which of them counts cannot be known.
    SeveralLines,
    /// One line carries a list of keys.
    SeveralKeys,
    /// The key carries structured-field parameters (`"…";name=value`).
    Parameters,
    /// An opening quote without a closing one.
    Unterminated,
    /// A backslash inside quotes before anything but a quote or a backslash.
    BadEscape,
    /// Something other than a parameter or a list follows the closing quote.
    TrailingText,
    /// A bare key holds `,` `;` `"` or `\`, which only the quoted form can carry.
    NeedsQuotes,
    /// A byte outside ASCII.
    NonAscii,
    /// A control character.
    Control,
    /// A space or tab inside the key.
    Space,
    /// Fewer characters than the rules ask for.
    TooShort {
        /// How many characters the key has.
        length: usize,
        /// The fewest allowed.
        min: usize,
    },
    /// More characters than the rules allow.
    TooLong {
        /// How many characters the key has.
        length: usize,
        /// The most allowed.
        max: usize,
    },
    /// The key is weak, and the rules refuse weak keys.
    Weak(Weakness),
    /// A composite of fewer than 2 or more than 16 keys, or of keys that are composite themselves.
    Composite,
}

impl Error {
    /// A stable name: what the test vectors under `vectors/keys/` call this error.
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
            Self::Missing => f.write_str("This operation needs an idempotency key and the request has none."),
            Self::Empty => {
                f.write_str("The idempotency key is empty; send a new random one, such as a UUID.")
            }
            Self::SeveralLines => {
                f.write_str("The idempotency key was sent on several header lines; send one.")
            }
            Self::SeveralKeys => f.write_str("The header lists several idempotency keys; send one."),
            Self::Parameters => f.write_str("The idempotency key carries parameters; send the key alone."),
            Self::Unterminated => f.write_str("The idempotency key opens with a quote that is never closed."),
            Self::BadEscape => f.write_str(
                "In a quoted idempotency key a backslash may only stand before a quote or a backslash.",
            ),
            Self::TrailingText => f.write_str("Something follows the closing quote of the idempotency key."),
            Self::NeedsQuotes => f.write_str(
                "An idempotency key with a comma, semicolon, quote or backslash must be sent in quotes.",
            ),
            Self::NonAscii => f.write_str("The idempotency key holds a character outside ASCII."),
            Self::Control => f.write_str("The idempotency key holds a control character."),
            Self::Space => f.write_str("The idempotency key holds a space."),
            Self::TooShort { length, min } => {
                write!(f, "The idempotency key has {length} characters; at least {min} are needed.")
            }
            Self::TooLong { length, max } => {
                write!(f, "The idempotency key has {length} characters; at most {max} are allowed.")
            }
            Self::Weak(weakness) => {
                write!(f, "{weakness}; use a new random key for every operation, such as a UUID.")
            }
            Self::Composite => {
                f.write_str("A composite idempotency key joins 2 to 16 keys, none of them composite itself.")
            }
        }
    }
}

impl std::error::Error for Error {}
