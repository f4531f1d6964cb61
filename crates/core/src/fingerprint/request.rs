//! The fingerprint of a request.
//!
//! Decides the order in which the parts of a request are hashed. The input is text and bytes instead of HTTP types, so
//! the gateway, the library and the command line compute the same fingerprint.

use super::encoding::{self, Coding, Decoder, Pieces};
use super::error::{Error, ErrorKind};
use super::media_type::{Kind, MediaType};
use super::pointer::Pointer;
use super::selection::{Selection, is_known};
use super::sink::{Discard, Hasher, Sink};
use super::{Fingerprint, form, json, multipart};
use std::borrow::Cow;

/// No legitimate content type is this long, and parsing needs several times its size.
const CONTENT_TYPE_BYTES_MAX: usize = 8 * 1024;

/// Limits for decoded bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The largest body after decoding, in bytes; also the most memory that is allocated for it, besides a decoder's
    /// window. A longer body is [`TooLarge`](ErrorKind::TooLarge), compressed or not.
    pub decoded_body_bytes_max: usize,
}

/// 10 MiB.
impl Default for Limits {
    fn default() -> Self {
        Self { decoded_body_bytes_max: 10 * 1024 * 1024 }
    }
}

/// Everything in a request that can count.
///
/// Two requests have the same fingerprint under one [`Selection`] exactly if these are equal: method, operation, path
/// and query string, byte by byte; the content type, apart from its spelling; the values of the selected headers; and
/// the meaning of the bodies.
///
/// Decoding, sorting and hashing use CPU time, and the sender decides how much: ten megabytes of malicious brotli can
/// take seconds. Do not process large bodies on threads that serve other requests, such as those of an async runtime.
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
    /// The name of the operation, or its route if it has no name, as [`Operation`](crate::scope::Operation) displays
    /// it.
    pub operation: &'a str,
    /// The path of the target, in its [normal form](crate::scope::normal_path): the name of an operation does not
    /// identify the order. Empty if there are no paths.
    pub path: &'a str,
    /// The query string without its question mark. No query and an empty query differ.
    pub query: Option<&'a [u8]>,
    /// The values of `Content-Type`, one for each header line. More than one, or one of more than 8 KiB, is
    /// [`Malformed`](ErrorKind::Malformed): parsers disagree which one counts.
    pub content_type: &'a [&'a [u8]],
    /// The values of `Content-Encoding`, one for each header line, in order. More than one known coding is
    /// [`Malformed`](ErrorKind::Malformed).
    pub content_encoding: &'a [&'a [u8]],
    /// Header names and values, in order. Headers that are not selected are ignored, so you can pass all of them.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// The body, as received.
    pub body: &'a [u8],
}

impl<'a> Request<'a> {
    /// A request without query string and headers.
    pub fn new(method: &'a str, operation: &'a str, path: &'a str, body: &'a [u8]) -> Self {
        let (query, content_type, content_encoding, headers) = (None, &[], &[], &[]);
        Self { method, operation, path, query, content_type, content_encoding, headers, body }
    }

    /// The fingerprint of this request under `selection`.
    ///
    /// Fails if the body does not match its content type, if it is too large, or if this build does not know the
    /// selection's version. It never returns a fingerprint of an incomplete body.
    pub fn fingerprint(&self, selection: &Selection, limits: &Limits) -> Result<Fingerprint, Error> {
        let body = self.decode(selection, *limits)?;
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

    /// The hashed canonical form of the body, for people and for finding differences.
    ///
    /// JSON and form bodies are text; others may be binary. Fails like [`fingerprint`](Self::fingerprint).
    pub fn canonical_body(&self, selection: &Selection, limits: &Limits) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        self.decode(selection, *limits)?.write(selection, &mut bytes, false)?;
        Ok(bytes)
    }

    /// The value at `pointer` in a JSON body, after decoding, as [`json::scalar_at`] returns it.
    ///
    /// In an empty body, every value is [`Absent`](json::Scalar::Absent). A body with another content type or an
    /// unknown content encoding is [`NotJson`](ErrorKind::NotJson).
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
        let body = self.decode(&Selection::default(), *limits)?;
        match body.tag {
            Tag::Empty => Ok(json::Scalar::Absent),
            Tag::Json | Tag::JsonPlaces => json::scalar_at(body.content.bytes(), pointer),
            Tag::Exact if body.is_empty()? => Ok(json::Scalar::Absent),
            Tag::Exact | Tag::Form | Tag::Multipart => {
                let problem = "not JSON: it has another content type or an unknown content encoding";
                Err(Error::new(ErrorKind::NotJson, "body", problem))
            }
        }
    }

    /// The most memory that is needed to decode this request's content encoding; 0 if there is none.
    ///
    /// A body that counts by its exact bytes is decoded as a stream, which only needs the decoder's window. JSON and
    /// forms also need the decoded body. Both are bounded by the limit: whoever reserves this much for bodies of
    /// strangers should try a smaller limit first.
    pub fn decoding_bytes_max(&self, limits: &Limits) -> usize {
        let bytes_max = limits.decoded_body_bytes_max;
        let Ok(Coding::Known(decoder)) = encoding::coding(self.content_encoding, self.body, bytes_max) else {
            return 0;
        };
        let held = decoder.bytes_max(bytes_max);
        let kind = self.content_type.first().and_then(|line| MediaType::parse(line));
        if kind.as_ref().map_or(Kind::Other, MediaType::kind) == Kind::Other {
            return held;
        }
        held.saturating_add(bytes_max)
    }

    /// Decodes the content encoding and decides how the body is hashed.
    fn decode(&self, selection: &Selection, limits: Limits) -> Result<Body<'a>, Error> {
        if !is_known(selection.version()) {
            let problem = "this build does not know the record's algorithm version";
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
            // The exact bytes count, so one piece at a time is enough.
            Coding::Known(decoder) if kind == Kind::Other => {
                (Content::Encoded { body: self.body, decoder, bytes_max }, Vec::new())
            }
            Coding::Known(decoder) => {
                (Content::Whole(Cow::Owned(decoder.decode_all(self.body, bytes_max)?)), Vec::new())
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

/// A body, and how it is hashed.
struct Body<'a> {
    content_type: Option<&'a [u8]>,
    media: Option<MediaType>,
    content: Content<'a>,
    /// The codings that were not decoded: none, or all of them if one is unknown.
    codings_left: Vec<Vec<u8>>,
    /// For content that is decoded while writing, this is [`Exact`](Tag::Exact) even if the result is empty.
    tag: Tag,
}

/// The content of a body after decoding.
enum Content<'a> {
    Whole(Cow<'a, [u8]>),
    /// Decoded while it is written.
    Encoded {
        body: &'a [u8],
        decoder: Decoder,
        bytes_max: usize,
    },
}

impl Content<'_> {
    /// The bytes of decoded content.
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Encoded { .. } => &[],
        }
    }
}

/// Writes decoded pieces, after a tag that says whether there are any.
struct TaggedWriter<'a, S> {
    sink: &'a mut S,
    /// The sink before the first piece.
    before: S,
    is_tagged: bool,
    is_empty: bool,
}

impl<'a, S: Sink> TaggedWriter<'a, S> {
    fn new(sink: &'a mut S, is_tagged: bool) -> Self {
        Self { before: sink.clone(), sink, is_tagged, is_empty: true }
    }
}

impl<S: Sink> Pieces for TaggedWriter<'_, S> {
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
    /// Writes the content type. The boundary is left out only if the body is also written without it; otherwise it
    /// decides how to parse the bytes.
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

    /// Whether the decoded content is empty. Fails if it cannot be decoded.
    fn is_empty(&self) -> Result<bool, Error> {
        match &self.content {
            Content::Whole(bytes) => Ok(bytes.is_empty()),
            Content::Encoded { body, decoder, bytes_max } => {
                let mut discard = Discard;
                let mut writer = TaggedWriter::new(&mut discard, false);
                decoder.stream(body, *bytes_max, &mut writer)?;
                Ok(writer.is_empty)
            }
        }
    }

    /// Writes the canonical body, after its tag if `is_tagged`.
    fn write<S: Sink>(&self, selection: &Selection, sink: &mut S, is_tagged: bool) -> Result<(), Error> {
        let bytes = match &self.content {
            Content::Whole(bytes) => bytes,
            Content::Encoded { body, decoder, bytes_max } => {
                let mut writer = TaggedWriter::new(sink, is_tagged);
                decoder.stream(body, *bytes_max, &mut writer)?;
                if writer.is_empty && is_tagged {
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
            Tag::Json | Tag::JsonPlaces => json::write(bytes, selection.parsed(), sink),
            Tag::Form => form::write(bytes, sink),
            Tag::Multipart => {
                multipart::write(bytes, self.media.as_ref().and_then(MediaType::boundary), sink)
            }
        }
    }
}

/// Shows only the method and the length of the body. The rest can be secret, even the path.
impl std::fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// How to interpret the canonical body that follows.
#[derive(Clone, Copy)]
enum Tag {
    Empty = 0,
    Exact = 1,
    Json = 2,
    Form = 3,
    Multipart = 4,
    JsonPlaces = 5,
}
