//! The outcome of an attempt, as it is stored and replayed.
//!
//! The outcome's bytes and status, for any protocol. [`classify`](mod@crate::classify) decides what a status means.

mod fields;

pub use fields::Fields;

use crate::labels::{self, Labels};
use bytes::Bytes;
use std::fmt;

/// The status of an answer, in its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// An HTTP status code.
    Http(u16),
    /// A gRPC status code.
    Grpc(u32),
    /// No protocol: a value that work in the same process returned.
    Value,
}

/// The body of an answer. Debug output shows its length, never its bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Body {
    /// All bytes; an empty body is kept too.
    Kept(Bytes),
    /// An answer was given, but its bytes were not stored: it was too large or a stream, or a verdict without a
    /// response resolved the record.
    NotRetained,
    /// Headers, body and trailers, sealed: only the status is readable without a key. The engine defines these bytes;
    /// the state machine and stores do not look inside.
    Sealed(Bytes),
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kept(bytes) => write!(f, "Kept({} bytes)", bytes.len()),
            Self::NotRetained => f.write_str("NotRetained"),
            Self::Sealed(bytes) => write!(f, "Sealed({} bytes)", bytes.len()),
        }
    }
}

/// The result of an attempt: enough to give every later request the same answer.
///
/// An empty body, `0`, `""`, `[]`, `false` and `null` are outcomes like any other.
///
/// Debug output is safe to log: the names of headers and the length of the body, and none of their contents.
///
/// ```
/// use semel_core::outcome::{Body, Outcome, Status};
///
/// let charged = Outcome::http(201, [("location", "/charges/7")], "{\"id\":7}");
/// assert_eq!(charged.status, Status::Http(201));
/// assert_eq!(charged.body, Body::Kept("{\"id\":7}".into()));
/// assert_eq!(Outcome::value("false").body, Body::Kept("false".into()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Outcome {
    /// The answer's status.
    pub status: Status,
    /// Headers in order, repeated ones included.
    pub headers: Fields,
    /// The answer's bytes.
    pub body: Body,
    /// Trailers in order (gRPC).
    pub trailers: Fields,
    /// The handler's labels. They move to the record when the outcome is stored, and are not replayed.
    pub labels: Labels,
}

impl Outcome {
    /// An HTTP answer.
    pub fn http<N, V>(status: u16, headers: impl IntoIterator<Item = (N, V)>, body: impl Into<Bytes>) -> Self
    where
        N: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let headers = headers.into_iter().collect();
        Self {
            status: Status::Http(status),
            headers,
            body: Body::Kept(body.into()),
            trailers: Fields::default(),
            labels: Labels::default(),
        }
    }

    /// A value returned by work in the same process, in the caller's encoding.
    pub fn value(bytes: impl Into<Bytes>) -> Self {
        let body = Body::Kept(bytes.into());
        Self { body, ..Self::not_retained(Status::Value) }
    }

    /// The heap bytes it uses.
    pub(crate) fn memory_bytes(&self) -> usize {
        let body = match &self.body {
            Body::Kept(bytes) | Body::Sealed(bytes) => bytes.len(),
            Body::NotRetained => 0,
        };
        body + self.headers.packed().len() + self.trailers.packed().len()
    }

    /// Copies shared buffers into memory of its own.
    pub(crate) fn detach(&mut self) {
        if let Body::Kept(bytes) | Body::Sealed(bytes) = &mut self.body {
            *bytes = Bytes::copy_from_slice(bytes);
        }
        self.headers.detach();
        self.trailers.detach();
    }

    /// An outcome of which only the status is known.
    pub fn not_retained(status: Status) -> Self {
        let (headers, trailers) = (Fields::default(), Fields::default());
        Self { status, headers, body: Body::NotRetained, trailers, labels: Labels::default() }
    }

    /// Labels the outcome with the resource that was created or changed: `about("order", "7")`. At most 255 bytes of
    /// each are kept.
    #[must_use]
    pub fn about(mut self, resource_type: &str, resource_id: &str) -> Self {
        self.labels.resource_type = labels::label(resource_type);
        self.labels.resource_id = labels::label(resource_id);
        self
    }

    /// Labels the outcome with the reason for a refusal: `error_code("OUT_OF_STOCK")`. At most 255 bytes are kept.
    #[must_use]
    pub fn error_code(mut self, error_code: &str) -> Self {
        self.labels.error_code = labels::label(error_code);
        self
    }
}
