//! A request, as far as it counts for its fingerprint.
//!
//! Contents: the order in which the parts of a request are hashed. Never here: HTTP types. Callers hand in text and
//! bytes, so that the same fingerprint comes out of a gateway, a library and a command line.

use super::encoding::{self, Coding, Decoder, Pieces};
use super::error::{Error, ErrorKind};
use super::media_type::{Kind, MediaType};
use super::pointer::Pointer;
use super::selection::{Selection, is_known};
use super::sink::{Hasher, Nowhere, Sink};
use super::{Fingerprint, form, json, multipart};
use std::borrow::Cow;

/// No honest content type comes near it; a dishonest one would be taken apart into many times its size.
const CONTENT_TYPE_BYTES_MAX: usize = 8 * 1024;

/// How much a body may come to as soon as its content encoding is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes a body may have, decoded; also the most that is ever allocated to hold it, besides a
    /// decoder's window. A longer one is
    /// [`TooLarge`](ErrorKind::TooLarge), compressed or not.
    pub decoded_body_bytes_max: usize,
}

impl Limits {
    /// The most bytes that may come of a body of `encoded` bytes. One of which more would come is refused: above 1
    /// MiB, one that expands more than a hundred times.
    pub fn decoded_max(&self, encoded: usize) -> usize {
        encoding::decoded_max(encoded, self.decoded_body_bytes_max)
    }
}

/// 10 MiB.
impl Default for Limits {
    fn default() -> Self {
        Self { decoded_body_bytes_max: 10 * 1024 * 1024 }
    }
}

/// Everything about a request that can count.
///
/// Two requests have the same fingerprint exactly when they ask for the same thing under one [`Selection`]: the same
/// method, operation, path and query string, byte by byte as they are handed in; the same content type, apart from
/// its spelling; the same values of the chosen headers; and bodies that say the same.
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
    /// The path of the target, in its [normal form](crate::scope::normal_path): the name of an operation does not say
    /// which order it is about. Empty for a caller that has no paths.
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
        hasher.count(body.codings_left.len());
        body.codings_left.iter().for_each(|coding| hasher.field(coding));
        body.write(selection, &mut hasher, true)?;
        Ok(hasher.finish())
    }

    /// The body in its canonical form, as it is hashed: for people, and for finding where two bodies differ.
    ///
    /// JSON and form bodies are text; the rest may be anything. Fails as [`fingerprint`](Self::fingerprint) does.
    pub fn canonical_body(&self, selection: &Selection, limits: &Limits) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.understand(selection, *limits)?.write(selection, &mut bytes, false)?;
        Ok(bytes)
    }

    /// What is at the place that `pointer` names in a JSON body, as [`json::scalar_at`] has it, with the content
    /// encoding undone first.
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
            Tag::Json | Tag::JsonPlaces => json::scalar_at(body.content.bytes(), pointer),
            Tag::Exact if body.is_empty()? => Ok(json::Scalar::Absent),
            Tag::Exact | Tag::Form | Tag::Multipart => {
                let problem = "it is not JSON, by its content type or its content encoding";
                Err(Error::new(ErrorKind::NotJson, "body", problem))
            }
        }
    }

    /// The most bytes that taking this request's fingerprint holds to undo its content encoding; 0 if there is none
    /// to undo.
    ///
    /// A body whose bytes count as they are is decoded as a stream: that takes the decoder's window and nothing
    /// besides. JSON and forms take what comes of them too, and more than a hundred times the body, above 1 MiB, may
    /// not.
    pub fn decoding_bytes_max(&self, limits: &Limits) -> usize {
        let bytes_max = limits.decoded_body_bytes_max;
        let Ok(Coding::Known(decoder)) = encoding::coding(self.content_encoding, self.body, bytes_max) else {
            return 0;
        };
        let held = decoder.bytes_max(self.body.len(), bytes_max);
        let kind = self.content_type.first().and_then(|line| MediaType::parse(line));
        if kind.as_ref().map_or(Kind::Other, MediaType::kind) == Kind::Other {
            return held;
        }
        held.saturating_add(encoding::decoded_max(self.body.len(), bytes_max))
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
        let kind = media.as_ref().map_or(Kind::Other, MediaType::kind);
        let bytes_max = limits.decoded_body_bytes_max;
        let (content, codings_left) = match encoding::coding(self.content_encoding, self.body, bytes_max)? {
            Coding::None => (Content::Whole(Cow::Borrowed(self.body)), Vec::new()),
            Coding::Unknown(names) => (Content::Whole(Cow::Borrowed(self.body)), names),
            // Its bytes count as they are: nobody needs more than one piece of them at a time.
            Coding::Known(decoder) if kind == Kind::Other => {
                (Content::Encoded { body: self.body, decoder, bytes_max }, Vec::new())
            }
            Coding::Known(decoder) => {
                (Content::Whole(Cow::Owned(decoder.whole(self.body, bytes_max)?)), Vec::new())
            }
        };
        let tag = match kind {
            _ if matches!(&content, Content::Whole(bytes) if bytes.is_empty()) => Tag::Empty,
            _ if !codings_left.is_empty() => Tag::Exact,
            Kind::Json if selection.include().is_empty() => Tag::Json,
            Kind::Json => Tag::JsonPlaces,
            Kind::Form => Tag::Form,
            Kind::Multipart => Tag::Multipart,
            Kind::Other => Tag::Exact,
        };
        Ok(Body { content_type, media, content, codings_left, tag })
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

/// A body, and how it counts.
struct Body<'a> {
    content_type: Option<&'a [u8]>,
    media: Option<MediaType>,
    content: Content<'a>,
    /// The codings still on the body: none, or all of those named where one of them is unknown.
    codings_left: Vec<Vec<u8>>,
    /// Of content that is decoded as it is written, this is [`Exact`](Tag::Exact) also where nothing comes of it.
    tag: Tag,
}

/// What a body comes to as soon as its coding is undone.
enum Content<'a> {
    Whole(Cow<'a, [u8]>),
    /// It is decoded as it is written.
    Encoded {
        body: &'a [u8],
        decoder: Decoder,
        bytes_max: usize,
    },
}

impl Content<'_> {
    /// The bytes of one that is whole.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Encoded { .. } => &[],
        }
    }
}

/// Writes what is decoded as it comes, behind the tag that says whether anything does.
struct Writing<'a, S> {
    sink: &'a mut S,
    /// As it was before the first piece.
    before: S,
    is_tagged: bool,
    is_empty: bool,
}

impl<'a, S: Sink> Writing<'a, S> {
    fn new(sink: &'a mut S, is_tagged: bool) -> Self {
        Self { before: sink.clone(), sink, is_tagged, is_empty: true }
    }
}

impl<S: Sink> Pieces for Writing<'_, S> {
    fn piece(&mut self, bytes: &[u8]) {
        if self.is_empty && self.is_tagged {
            self.sink.push(Tag::Exact as u8);
        }
        self.is_empty = false;
        self.sink.write(bytes);
    }

    fn restart(&mut self) {
        self.is_empty = true;
        self.sink.clone_from(&self.before);
    }
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

    /// Whether nothing comes of it. Fails if it cannot be decoded.
    fn is_empty(&self) -> Result<bool, Error> {
        match &self.content {
            Content::Whole(bytes) => Ok(bytes.is_empty()),
            Content::Encoded { body, decoder, bytes_max } => {
                let mut nowhere = Nowhere;
                let mut writing = Writing::new(&mut nowhere, false);
                decoder.stream(body, *bytes_max, &mut writing)?;
                Ok(writing.is_empty)
            }
        }
    }

    /// Writes the canonical body, behind its tag where it is to have one.
    fn write<S: Sink>(&self, selection: &Selection, sink: &mut S, is_tagged: bool) -> Result<(), Error> {
        let bytes = match &self.content {
            Content::Whole(bytes) => bytes,
            Content::Encoded { body, decoder, bytes_max } => {
                let mut writing = Writing::new(sink, is_tagged);
                decoder.stream(body, *bytes_max, &mut writing)?;
                if writing.is_empty && is_tagged {
                    sink.push(Tag::Empty as u8);
                }
                return Ok(());
            }
        };
        if is_tagged {
            sink.push(self.tag as u8);
        }
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
