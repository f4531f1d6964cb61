//! Fingerprints: whether two requests with one key ask for the same thing.
//!
//! A versioned SHA-256 over the relevant parts of a request, with the body in a canonical form: JSON by value, forms by
//! their pairs, multipart bodies without their boundary, everything else byte by byte, always after decoding the
//! content encoding. No HTTP types, no clock, and no bytes of a request in an error.
//!
//! `vectors/fingerprint/README.md` specifies the encoding for other languages, with test vectors.

mod encoding;
mod error;
mod form;
pub mod json;
mod media_type;
mod multipart;
mod pointer;
mod request;
mod selection;
mod sink;

pub use error::{Error, ErrorKind};
pub use pointer::{Pointer, PointerError};
pub use request::{Limits, Request};
pub use selection::{Selection, SelectionError, VERSION};

use std::fmt;

/// The hash of a payload: 32 bytes, equal for two requests exactly if they ask for the same thing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Wraps 32 bytes read back from a store.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes that a record keeps.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// All 64 hexadecimal digits, for comparison. Deliberately not `Display`, so that no log line shows a complete
    /// fingerprint by accident: it would confirm a guessed payload.
    pub fn to_hex(&self) -> String {
        hex::encode(self.0)
    }
}

/// The first eight digits only, so that debug output is safe to log.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = self.0.first_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        write!(f, "Fingerprint({prefix:08x}…)")
    }
}

/// Something that can be fingerprinted again, under another selection.
///
/// A retry is judged by the selection of its record. If that is not the current one, the payload is fingerprinted
/// again. The result must depend only on the payload and the selection.
///
/// ```
/// use semel_core::fingerprint::{Fingerprint, Limits, Payload, Request, Selection};
///
/// let (today, recorded) = (Selection::default(), Selection::default().excluding(["/sent_at"])?);
/// let body = br#"{"amount":1,"sent_at":"noon"}"#;
/// let request = Request {
///     content_type: &[b"application/json"],
///     ..Request::new("POST", "pay", "/accounts/7/pay", body)
/// };
/// let payload: &dyn Payload = &(request, Limits::default());
/// assert_ne!(payload.fingerprint(&today)?, payload.fingerprint(&recorded)?);
///
/// let own_hash: &dyn Payload = &Fingerprint::from_bytes([7; 32]);
/// assert_eq!(own_hash.fingerprint(&today)?, own_hash.fingerprint(&recorded)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Payload: Send + Sync {
    /// The fingerprint under `selection`.
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error>;
}

/// A request with its limits.
impl Payload for (Request<'_>, Limits) {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        self.0.fingerprint(selection, &self.1)
    }
}

/// A hash that the caller computed: the same under every selection.
impl Payload for Fingerprint {
    fn fingerprint(&self, _: &Selection) -> Result<Fingerprint, Error> {
        Ok(*self)
    }
}
