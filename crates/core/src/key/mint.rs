//! Generates keys.
//!
//! All results pass the default [`Rules`] and fit the bare header form. Clock and randomness are arguments, so tests
//! can choose them.

use std::fmt;
use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use uuid::Builder;

use super::{Error as KeyError, Key, Kind, Rules};
use crate::encoding::Sink;
use crate::time::Time;

/// A random key: a UUID of version 4.
///
/// Six of the 128 bits are overwritten by version and variant. Pass bytes from a cryptographic generator. Generate
/// one key per operation, and reuse it for every retry.
///
/// ```
/// use semel_core::key::mint;
///
/// assert_eq!(mint::uuid_v4([0xff; 16]).expose(), "ffffffff-ffff-4fff-bfff-ffffffffffff");
/// ```
pub fn uuid_v4(random: [u8; 16]) -> Key {
    uuid(Builder::from_random_bytes(random))
}

/// A random key that sorts by time: a UUID of version 7.
///
/// Later milliseconds give greater keys; within one millisecond, the random bytes decide. A moment beyond 48 bits
/// (after the year 10889) counts as the last one that fits.
///
/// ```
/// use semel_core::{key::mint, time::Time};
///
/// let key = mint::uuid_v7(Time::from_millis(1_700_000_000_000), [0; 10]);
/// assert_eq!(key.expose(), "018bcfe5-6800-7000-8000-000000000000");
/// ```
pub fn uuid_v7(time: Time, random: [u8; 10]) -> Key {
    uuid(Builder::from_unix_timestamp_millis(time.as_millis().min((1 << 48) - 1), &random))
}

/// A random key that sorts by time in 26 characters: a ULID, Crockford's base 32 of the milliseconds and 80 random
/// bits.
///
/// Sorts like [`uuid_v7`], with the same limit.
///
/// ```
/// use semel_core::{key::mint, time::Time};
///
/// let key = mint::ulid(Time::from_millis(1_469_918_176_385), [0xff; 10]);
/// assert_eq!(key.expose(), "01ARYZ6S41ZZZZZZZZZZZZZZZZ");
/// ```
pub fn ulid(time: Time, random: [u8; 10]) -> Key {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let millis = time.as_millis().min((1 << 48) - 1);
    let bits = random.iter().fold(u128::from(millis), |bits, byte| bits << 8 | u128::from(*byte));
    let digit = |at: u32| char::from(DIGITS[(bits >> (5 * at)) as usize & 31]);
    Key(Kind::Text((0..26).rev().map(digit).collect::<String>().into()))
}

fn uuid(builder: Builder) -> Key {
    Key(Kind::Text(builder.into_uuid().hyphenated().to_string().into()))
}

/// A readable key: the parts joined by `:`.
///
/// Letters, digits and most other visible ASCII characters are unchanged; `:` `%` `,` `;` `"` `\`, spaces and
/// everything outside ASCII are percent-encoded (UTF-8, upper-case digits). So different parts give different keys.
/// Refused: no parts, an empty part (often an unset variable), control characters, and everything that the default
/// [`Rules`] refuse: a result that is too short or too long, e-mail addresses, only plain words.
///
/// ```
/// use semel_core::key::mint;
///
/// assert_eq!(mint::structured(["order", "1234", "charge"])?.expose(), "order:1234:charge");
/// assert_eq!(mint::structured(["order", "12:34", "charge"])?.expose(), "order:12%3A34:charge");
/// # Ok::<(), mint::Error>(())
/// ```
pub fn structured<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Key, Error> {
    let mut text = String::new();
    let mut count = 0;
    for (index, part) in parts.into_iter().enumerate() {
        if part.is_empty() {
            return Err(Error::EmptyPart { index });
        }
        if part.chars().any(char::is_control) {
            return Err(Error::Key(KeyError::Control));
        }
        if index > 0 {
            text.push(':');
        }
        for byte in part.bytes() {
            match byte {
                b':' | b'%' | b',' | b';' | b'"' | b'\\' | b' ' | 0x80.. => {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "%{byte:02X}");
                }
                _ => text.push(char::from(byte)),
            }
        }
        count = index + 1;
    }
    if count == 0 {
        return Err(Error::NoParts);
    }
    Ok(Key::from_text(&text, &Rules::default()).map_err(Error::Key)?.key)
}

/// A key that hides its parts: SHA-256 over the fields, 64 hexadecimal digits.
///
/// Each field is preceded by its length, so `["ab", "c"]` and `["a", "bc"]` differ. Anyone who can guess the fields
/// can compute the key: the scope separates callers, not the key. An empty list is refused, because everyone would
/// get the same key.
///
/// ```
/// use semel_core::key::mint;
///
/// let key = mint::sha256([b"order".as_slice(), b"1234"])?;
/// assert_eq!(key.expose().len(), 64);
/// # Ok::<(), mint::Error>(())
/// ```
pub fn sha256<'a>(fields: impl IntoIterator<Item = &'a [u8]>) -> Result<Key, Error> {
    let mut hash = Sha256::new();
    hash.field(b"semel key v1");
    let mut fields = fields.into_iter().peekable();
    if fields.peek().is_none() {
        return Err(Error::NoParts);
    }
    for field in fields {
        hash.field(field);
    }
    Ok(Key(Kind::Text(hex::encode(hash.finalize()).into())))
}

/// Why no key could be generated from the parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There are no parts.
    NoParts,
    /// One part is empty.
    EmptyPart {
        /// Which one, counted from 0.
        index: usize,
    },
    /// The default rules refuse the resulting key.
    Key(KeyError),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoParts => f.write_str("a key needs at least one part"),
            Self::EmptyPart { index } => write!(f, "part {index} of the key is empty; is a variable unset?"),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}
