//! A request, as far as it counts for its fingerprint.
//!
//! What lives here: the order in which the parts of a request are hashed. What must never: HTTP types. Callers hand
//! in text and bytes, so that the same fingerprint comes out of a gateway, a library and a command line.

use super::error::{Error, ErrorKind};
use super::media_type::{Kind, MediaType};
use super::pointer::Pointer;
use super::selection::{Selection, is_known};
use super::sink::{Hasher, Sink};
use super::{Fingerprint, encoding, form, json, multipart};

/// How much a body may come to once its content encoding is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes a body may have, decoded; also the most that is ever allocated to hold it. A longer one is
    /// [`TooLarge`](ErrorKind::TooLarge), compressed or not.
    pub decoded_body_bytes_max: usize,
}

/// 10 MiB.
impl Default for Limits {
    fn default() -> Self {
        Self { decoded_body_bytes_max: 10 * 1024 * 1024 }
    }
}

/// Everything about a request that can count.
///
/// Two requests have the same fingerprint exactly when they ask for the same thing under one [`Selection`]: the
/// same method, operation and query string, byte by byte; the same content type, apart from its spelling; the same
/// values of the chosen headers; and bodies that say the same.
///
/// ```
/// use semel_core::fingerprint::{Limits, Request, Selection};
///
/// let first = Request {
///     content_type: Some(b"application/json"),
///     ..Request::new("POST", "/payments", br#"{"amount": 10.0, "to": "acme"}"#)
/// };
/// let retry = Request {
///     content_type: Some(b"Application/JSON; charset=utf-8"),
///     ..Request::new("POST", "/payments", br#"{"to":"acme","amount":10}"#)
/// };
/// let (selection, limits) = (Selection::default(), Limits::default());
/// assert_eq!(first.fingerprint(&selection, &limits)?, retry.fingerprint(&selection, &limits)?);
/// # Ok::<(), semel_core::fingerprint::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The method, as received.
    pub method: &'a str,
    /// What is asked for: the name of the operation, or the raw path.
    pub operation: &'a str,
    /// The query string without its question mark. None and an empty one are two different things.
    pub query: Option<&'a [u8]>,
    /// The value of `Content-Type`.
    pub content_type: Option<&'a [u8]>,
    /// The values of `Content-Encoding`, one for each header line, in order.
    pub content_encoding: &'a [&'a [u8]],
    /// Header names and values, in order. Those that the selection does not name are ignored, so that all can be
    /// handed in.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body, as received.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request with neither query string nor headers.
    pub fn new(method: &'a str, operation: &'a str, body: &'a [u8]) -> Self {
        Self { method, operation, query: None, content_type: None, content_encoding: &[], headers: &[], body }
    }

    /// The fingerprint of this request under `selection`.
    ///
    /// Fails where the body is not what its content type says, where it is too large, and where the selection is
    /// of a version this build does not know. Never answers with a fingerprint of half a body.
    pub fn fingerprint(&self, selection: &Selection, limits: &Limits) -> Result<Fingerprint, Error> {
        known(selection)?;
        let mut hasher = Hasher::new();
        hasher.write(b"semel-fingerprint\0");
        hasher.push(selection.version());
        hasher.field(self.method.as_bytes());
        hasher.field(self.operation.as_bytes());
        match self.query {
            None => hasher.push(0),
            Some(query) => {
                hasher.push(1);
                hasher.field(query);
            }
        }
        let media = self.content_type.and_then(MediaType::parse);
        match (self.content_type, &media) {
            (None, _) => hasher.push(0),
            (Some(_), Some(media)) => {
                hasher.push(1);
                hasher.field(&media.normal());
            }
            (Some(exact), None) => {
                hasher.push(2);
                hasher.field(exact);
            }
        }
        self.write_headers(selection, &mut hasher);
        self.write_body(media.as_ref(), selection, *limits, true, &mut hasher)?;
        Ok(hasher.finish())
    }

    /// The body in its canonical form, as it is hashed: for people, and for finding where two bodies differ.
    ///
    /// JSON and form bodies are text; the rest may be anything. Fails as [`fingerprint`](Self::fingerprint) does.
    pub fn canonical_body(&self, selection: &Selection, limits: &Limits) -> Result<Vec<u8>, Error> {
        known(selection)?;
        let media = self.content_type.and_then(MediaType::parse);
        let mut bytes = Vec::new();
        self.write_body(media.as_ref(), selection, *limits, false, &mut bytes)?;
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
    /// let request = Request { content_type: Some(b"application/json"), ..Request::new("POST", "/hook", body) };
    /// let pointer = Pointer::parse("/event_id")?;
    /// assert_eq!(request.scalar_at(&pointer, &Limits::default())?, Scalar::Text("evt_1".into()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scalar_at(&self, pointer: &Pointer, limits: &Limits) -> Result<json::Scalar, Error> {
        let media = self.content_type.and_then(MediaType::parse);
        let decoded = encoding::decode(self.content_encoding, self.body, limits.decoded_body_bytes_max)?;
        if decoded.bytes().is_empty() {
            return Ok(json::Scalar::Absent);
        }
        if !decoded.left().is_empty() || media.is_none_or(|media| media.kind() != Kind::Json) {
            let problem = "it is not JSON, by its content type or its content encoding";
            return Err(Error::new(ErrorKind::NotJson, "body", problem));
        }
        json::scalar_at(decoded.bytes(), pointer)
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

    /// Writes the body, behind its tags where they are asked for.
    fn write_body<S: Sink>(
        &self,
        media: Option<&MediaType>,
        selection: &Selection,
        limits: Limits,
        tags: bool,
        sink: &mut S,
    ) -> Result<(), Error> {
        let decoded = encoding::decode(self.content_encoding, self.body, limits.decoded_body_bytes_max)?;
        let body = decoded.bytes();
        let kind = match media.map_or(Kind::Other, MediaType::kind) {
            _ if body.is_empty() => Tag::Empty,
            _ if !decoded.left().is_empty() => Tag::Exact,
            Kind::Json if selection.include().is_empty() => Tag::Json,
            Kind::Json => Tag::JsonPlaces,
            Kind::Form => Tag::Form,
            Kind::Multipart => Tag::Multipart,
            Kind::Other => Tag::Exact,
        };
        if tags {
            sink.count(decoded.left().len());
            decoded.left().iter().for_each(|coding| sink.field(coding));
            sink.push(kind as u8);
        }
        match kind {
            Tag::Empty => Ok(()),
            Tag::Exact => {
                sink.write(body);
                Ok(())
            }
            Tag::Json | Tag::JsonPlaces => json::write(body, selection.places(), sink),
            Tag::Form => form::write(body, sink),
            Tag::Multipart => multipart::write(body, media.and_then(MediaType::boundary), sink),
        }
    }
}

/// Shows everything but the query string, the header values and the body, which may be secret.
impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("operation", &self.operation)
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

fn known(selection: &Selection) -> Result<(), Error> {
    if is_known(selection.version()) {
        return Ok(());
    }
    let problem = "this build does not know the version that the record was made under";
    Err(Error::new(ErrorKind::UnknownVersion, "fingerprint", problem))
}
