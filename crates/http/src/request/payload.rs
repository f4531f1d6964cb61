//! A request as the input of its fingerprint.
//!
//! The owned form of [`fingerprint::Request`](semel::core::fingerprint::Request).

use super::key::NoKey;
use crate::body::CompleteBody;
use crate::memory::{BodyMemory, DecodePermit};
use crate::route::{CompiledRoute, Target};
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};
use semel::core::fingerprint::json::Scalar;
use semel::core::fingerprint::{Error, ErrorKind, Fingerprint, Limits, Payload, Pointer, Request, Selection};
use semel::core::key::Parsed;
use semel::core::scope::Operation;
use std::sync::Arc;

/// Larger bodies are parsed on a blocking thread, so that other requests do not wait. Compressed ones always are:
/// their sender decides how much work they need.
const LARGE_BYTES: usize = 64 * 1024;

/// A compressed body is first decoded within this size, or within this many times its length, whichever is more. JSON
/// and forms typically reach a tenth of that. Only what turns out to be longer reserves the memory for the longest body
/// that is allowed: otherwise a few bytes, which nearly all senders mean honestly, would reserve it.
const TRIED_BYTES: usize = 1 << 20;
const TRIED_EXPANSION: usize = 100;

/// The limit within which `body` is decoded first, if `bytes_max` are allowed.
pub(crate) fn tried_first(headers: &HeaderMap, body: &Bytes, bytes_max: usize) -> usize {
    if !headers.contains_key(CONTENT_ENCODING) {
        return bytes_max;
    }
    body.len().saturating_mul(TRIED_EXPANSION).max(TRIED_BYTES).min(bytes_max)
}

/// Whether a body was longer than its limit.
pub(crate) fn is_too_large(parsed: &Result<ParsedRequest, Error>) -> bool {
    let (Err(error) | Ok(ParsedRequest::NoKey(NoKey::Unreadable(error)))) = parsed else { return false };
    error.kind() == ErrorKind::TooLarge
}

/// Everything in a request that can count.
pub(crate) struct RequestPayload {
    target: Target,
    operation: Operation,
    headers: HeaderMap,
    body: Bytes,
    /// The memory of the body, which is kept as long as another fingerprint may be needed.
    _memory: Option<Arc<BodyMemory>>,
    limits: Limits,
}

/// A parsed request, whose fingerprint under one selection is known.
pub(crate) struct FingerprintedPayload {
    payload: Arc<RequestPayload>,
    known: (Selection, Fingerprint),
}

/// The result of parsing a request.
pub(crate) enum ParsedRequest {
    /// With the key from its body, if that was needed.
    Payload(FingerprintedPayload, Option<Parsed>),
    /// It has no key.
    NoKey(NoKey),
}

impl RequestPayload {
    pub(crate) fn new(
        parts: &Parts,
        target: &Target,
        operation: &Operation,
        complete: &CompleteBody,
        bytes_max: usize,
    ) -> Self {
        Self {
            target: target.clone(),
            operation: operation.clone(),
            headers: parts.headers.clone(),
            body: complete.data.clone(),
            _memory: complete.memory.clone(),
            limits: Limits { decoded_body_bytes_max: bytes_max },
        }
    }

    /// The most memory for decoding the body's content encoding; `None` if it has none.
    pub(crate) fn decoding_bytes_max(&self) -> Option<usize> {
        if !self.headers.contains_key(CONTENT_ENCODING) {
            return None;
        }
        let (kind, coding) = (self.lines(&CONTENT_TYPE), self.lines(&CONTENT_ENCODING));
        let request = Request { content_type: &kind, content_encoding: &coding, ..self.request() };
        Some(request.decoding_bytes_max(&self.limits)).filter(|bytes| *bytes > 0)
    }

    /// Parses the request under the settings of its route, on a blocking thread if that may take long. `for_key`: it
    /// has no key yet. `permit` is held until this is done, even if nobody waits for it any more.
    pub(crate) async fn parse_payload(
        self,
        route: &Arc<CompiledRoute>,
        for_key: bool,
        permit: Option<DecodePermit>,
    ) -> Result<ParsedRequest, Error> {
        let payload = Arc::new(self);
        let is_long = payload.body.len() >= LARGE_BYTES || payload.headers.contains_key(CONTENT_ENCODING);
        if !is_long {
            return payload.parse_inline(route, for_key);
        }
        let (reader, settings) = (Arc::clone(&payload), Arc::clone(route));
        let taking = move || {
            let _permit = permit;
            reader.parse_inline(&settings, for_key)
        };
        match tokio::task::spawn_blocking(taking).await {
            Ok(taken) => taken,
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            // The runtime is shutting down, and nobody waits any more.
            Err(_) => payload.parse_inline(route, for_key),
        }
    }

    fn parse_inline(self: Arc<Self>, route: &CompiledRoute, for_key: bool) -> Result<ParsedRequest, Error> {
        let settings = &route.settings;
        let key = match for_key.then(|| settings.key_source.read(&self.headers, Some(&self), settings)) {
            None => None,
            Some(Ok(parsed)) => Some(parsed),
            Some(Err(no_key)) => return Ok(ParsedRequest::NoKey(no_key)),
        };
        let selection = &settings.policy.selection;
        let fingerprint = self.fingerprint(selection)?;
        Ok(ParsedRequest::Payload(
            FingerprintedPayload { payload: self, known: (selection.clone(), fingerprint) },
            key,
        ))
    }

    /// The value at one place of a JSON body.
    pub(crate) fn scalar_at(&self, pointer: &Pointer) -> Result<Scalar, Error> {
        let (kind, coding) = (self.lines(&CONTENT_TYPE), self.lines(&CONTENT_ENCODING));
        let request = Request { content_type: &kind, content_encoding: &coding, ..self.request() };
        request.scalar_at(pointer, &self.limits)
    }

    fn request(&self) -> Request<'_> {
        let (method, path) = (self.target.method().as_str(), self.target.path());
        Request::new(method, self.operation.as_str(), path, &self.body)
    }

    fn lines(&self, name: &HeaderName) -> Vec<&[u8]> {
        self.headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
    }
}

impl Payload for RequestPayload {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = Request {
            query: self.target.query().map(str::as_bytes),
            content_type: &self.lines(&CONTENT_TYPE),
            content_encoding: &self.lines(&CONTENT_ENCODING),
            headers: &headers,
            ..self.request()
        };
        request.fingerprint(selection, &self.limits)
    }
}

impl FingerprintedPayload {
    /// The fingerprint under the settings of the request's route.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.known.1
    }
}

impl Payload for FingerprintedPayload {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        let (known, fingerprint) = &self.known;
        if known == selection {
            return Ok(*fingerprint);
        }
        // A record with other settings. Rare enough to compute it inline.
        self.payload.fingerprint(selection)
    }
}
