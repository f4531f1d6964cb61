//! A request, as far as it counts for its fingerprint.
//!
//! What lives here: the order in which the parts of a request are hashed. What must never: HTTP types. Callers hand
//! in text and bytes, so that the same fingerprint comes out of a gateway, a library and a command line.

use super::encoding::{self, Decoded};
use super::error::{Error, ErrorKind};
use super::media_type::{Kind, MediaType};
use super::pointer::Pointer;
use super::selection::{Selection, is_known};
use super::sink::{Hasher, Sink};
use super::{Fingerprint, form, json, multipart};

/// No honest content type comes near it; a dishonest one would be taken apart into many times its size.
const CONTENT_TYPE_BYTES_MAX: usize = 8 * 1024;

/// How much a body may come to once its content encoding is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes a body may have, decoded; also the most that is ever allocated to hold it. A longer one is
    /// [`TooLarge`](ErrorKind::TooLarge), compressed or not.
    pub decoded_body_bytes_max: usize,
}

/// 10 MiB.
impl Limits {
    /// The most bytes that are held to decode a body of `encoded` bytes. A body of which more would come is refused: above 1 MiB,
    /// one that expands more than a hundred times.
    pub fn decoded_max(&self, encoded: usize) -> usize {
        encoding::decoded_max(encoded, self.decoded_body_bytes_max)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { decoded_body_bytes_max: 10 * 1024 * 1024 }
    }
}

/// Everything about a request that can count.
///
/// Two requests have the same fingerprint exactly when they ask for the same thing under one [`Selection`]: the
/// same method, operation, path and query string, byte by byte as they are handed in; the same content type, apart from its spelling; the
/// same values of the chosen headers; and bodies that say the same.
///
/// Undoing a coding, sorting and hashing are work for the processor, and the sender decides how much: it can be seconds
/// for ten megabytes of hostile brotli. Keep large bodies off the threads that other requests wait for, such as those
/// of an async runtime.
///
/// ```
/// use semel_core::fingerprint::{Limits, Request, Selection};
///
/// let first = Request {
///     content_type: &[b"application/json"],
///     ..Request::new("POST", "pay-order", "/orders/1/pay", br#"{"amount": 10.0, "to": "acme"}"#)
/// };
/// let retry = Request {
///     content_type: &[b"Application/JSON; charset=utf-8"],
///     ..Request::new("POST", "pay-order", "/orders/1/pay", br#"{"to":"acme","amount":10}"#)
/// };
/// let other = Request { path: "/orders/2/pay", ..retry };
/// let (selection, limits) = (Selection::default(), Limits::default());
/// assert_eq!(first.fingerprint(&selection, &limits)?, retry.fingerprint(&selection, &limits)?);
/// assert_ne!(first.fingerprint(&selection, &limits)?, other.fingerprint(&selection, &limits)?);
/// # Ok::<(), semel_core::fingerprint::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The method, in its [normal form](crate::scope::normal_method).
    pub method: &'a str,
    /// What is asked for: the name of the operation, or the route where it has none, as
    /// [`Operation`](crate::scope::Operation) displays it.
    pub operation: &'a str,
    /// The path of the target, in its [normal form](crate::scope::normal_path): the name of an operation does not say which
    /// order it is about. Empty for a caller that has no paths.
    pub path: &'a str,
    /// The query string without its question mark. None and an empty one are two different things.
    pub query: Option<&'a [u8]>,
    /// The values of `Content-Type`, one for each header line. More than one, or one of more than 8 KiB, is
    /// [`Malformed`](ErrorKind::Malformed): it depends on the reader which of them holds.
    pub content_type: &'a [&'a [u8]],
    /// The values of `Content-Encoding`, one for each header line, in order. More than one coding to undo is
    /// [`Malformed`](ErrorKind::Malformed).
    pub content_encoding: &'a [&'a [u8]],
    /// Header names and values, in order. Those that the selection does not name are ignored, so that all can be
    /// handed in.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body, as received.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request with neither query string nor headers.
    pub fn new(method: &'a str, operation: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        let (query, content_type, content_encoding, headers) = (None, &[], &[], &[]);
        Self { method, operation, path, query, content_type, content_encoding, headers, body }
    }

    /// The fingerprint of this request under `selection`.
    ///
    /// Fails where the body is not what its content type says, where it is too large, and where the selection is
    /// of a version this build does not know. Never answers with a fingerprint of half a body.
    pub fn fingerprint(&self, selection: &Selection, limits: &Limits) -> Result<Fingerprint, Error> {
        let body = self.understand(selection, *limits)?;
        let mut hasher = Hasher::new();
        hasher.write(b"semel-fingerprint\0");
        hasher.push(selection.version());
        hasher.field(self.method.as_bytes());
        hasher.field(self.operation.as_bytes());
        hasher.field(self.path.as_bytes());
        match self.query {
            None => hasher.push(0),
            Some(query) => {
                hasher.push(1);
                hasher.field(query);
            }
        }
        body.write_type(&mut hasher);
        self.write_headers(selection, &mut hasher);
        hasher.count(body.decoded.left().len());
        body.decoded.left().iter().for_each(|coding| hasher.field(coding));
        hasher.push(body.tag as u8);
        body.write(selection, &mut hasher)?;
        Ok(hasher.finish())
    }

    /// The body in its canonical form, as it is hashed: for people, and for finding where two bodies differ.
    ///
    /// JSON and form bodies are text; the rest may be anything. Fails as [`fingerprint`](Self::fingerprint) does.
    pub fn canonical_body(&self, selection: &Selection, limits: &Limits) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.understand(selection, *limits)?.write(selection, &mut bytes)?;
        Ok(bytes)
    }

    /// What stands at the place that `pointer` names in a JSON body, as [`json::scalar_at`] has it, with the
    /// content encoding undone first.
    ///
    /// In an empty body every place is [`Absent`](json::Scalar::Absent). A body that is not JSON, by its type or
    /// because its coding is unknown, is [`NotJson`](ErrorKind::NotJson).
    ///
    /// ```
    /// use semel_core::fingerprint::{Limits, Pointer, Request, json::Scalar};
    ///
    /// let body = br#"{"event_id":"evt_1"}"#;
    /// let request = Request { content_type: &[b"application/json"], ..Request::new("POST", "hook", "/hook", body) };
    /// let pointer = Pointer::parse("/event_id")?;
    /// assert_eq!(request.scalar_at(&pointer, &Limits::default())?, Scalar::Text("evt_1".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scalar_at(&self, pointer: &Pointer, limits: &Limits) -> Result<json::Scalar, Error> {
        let body = self.understand(&Selection::default(), *limits)?;
        match body.tag {
            Tag::Empty => Ok(json::Scalar::Absent),
            Tag::Json | Tag::JsonPlaces => json::scalar_at(body.decoded.bytes(), pointer),
            Tag::Exact | Tag::Form | Tag::Multipart => {
                let problem = "it is not JSON, by its content type or its content encoding";
                Err(Error::new(ErrorKind::NotJson, "body", problem))
            }
        }
    }

    /// Undoes the content encoding and settles how the body is to be hashed.
    fn understand(&self, selection: &Selection, limits: Limits) -> Result<Body<'a>, Error> {
        if !is_known(selection.version()) {
            let problem = "this build does not know the version that the record was made under";
            return Err(Error::new(ErrorKind::UnknownVersion, "fingerprint", problem));
        }
        let content_type = match self.content_type {
            [] => None,
            [line] if line.len() > CONTENT_TYPE_BYTES_MAX => {
                return Err(Error::new(ErrorKind::Malformed, "Content-Type", "it is longer than 8 KiB"));
            }
            [line] => Some(*line),
            _ => return Err(Error::new(ErrorKind::Malformed, "Content-Type", "it was sent more than once")),
        };
        let media = content_type.and_then(MediaType::parse);
        let decoded = encoding::decode(self.content_encoding, self.body, limits.decoded_body_bytes_max)?;
        let tag = match media.as_ref().map_or(Kind::Other, MediaType::kind) {
            _ if decoded.bytes().is_empty() => Tag::Empty,
            _ if !decoded.left().is_empty() => Tag::Exact,
            Kind::Json if selection.include().is_empty() => Tag::Json,
            Kind::Json => Tag::JsonPlaces,
            Kind::Form => Tag::Form,
            Kind::Multipart => Tag::Multipart,
            Kind::Other => Tag::Exact,
        };
        Ok(Body { content_type, media, decoded, tag })
    }

    fn write_headers<S: Sink>(&self, selection: &Selection, sink: &mut S) {
        sink.count(selection.headers().len());
        for chosen in selection.headers() {
            let values = || self.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(chosen));
            sink.field(chosen.as_bytes());
            sink.count(values().count());
            values().for_each(|(_, value)| sink.field(value));
        }
    }
}

/// A body that is decoded, and how it counts.
struct Body<'a> {
    content_type: Option<&'a [u8]>,
    media: Option<MediaType>,
    decoded: Decoded<'a>,
    tag: Tag,
}

impl Body<'_> {
    /// Writes the content type. Without the boundary only where the body is written without it, too: elsewhere it
    /// says how the bytes are to be read.
    fn write_type<S: Sink>(&self, sink: &mut S) {
        let normal = self.media.as_ref().and_then(|media| match self.tag {
            Tag::Multipart => media.normal_without_boundary(),
            _ => media.normal(),
        });
        match (self.content_type, normal) {
            (None, _) => sink.push(0),
            (Some(_), Some(normal)) => {
                sink.push(1);
                sink.field(&normal);
            }
            (Some(exact), None) => {
                sink.push(2);
                sink.field(exact);
            }
        }
    }

    /// Writes the canonical body.
    fn write<S: Sink>(&self, selection: &Selection, sink: &mut S) -> Result<(), Error> {
        let bytes = self.decoded.bytes();
        match self.tag {
            Tag::Empty => Ok(()),
            Tag::Exact => {
                sink.write(bytes);
                Ok(())
            }
            Tag::Json | Tag::JsonPlaces => json::write(bytes, selection.places(), sink),
            Tag::Form => form::write(bytes, sink),
            Tag::Multipart => {
                multipart::write(bytes, self.media.as_ref().and_then(MediaType::boundary), sink)
            }
        }
    }
}

/// Shows the method and how long the body is: a log may know that much. The rest can be secret, the path included.
impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// How the canonical body that follows is to be read.
#[derive(Clone, Copy)]
enum Tag {
    Empty = 0,
    Exact = 1,
    Json = 2,
    Form = 3,
    Multipart = 4,
    JsonPlaces = 5,
}
