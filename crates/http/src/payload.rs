//! A request as its fingerprint is taken.
//!
//! What lives here: the owned form of [`fingerprint::Request`](semel::core::fingerprint::Request). What must never: a
//! fingerprint of its own making.

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Uri};
use semel::core::fingerprint::{Error, Fingerprint, Limits, Payload, Request, Selection};
use semel::core::scope::Operation;
use std::sync::Arc;

/// From this many bytes on a body is taken apart where no other request waits for it. A compressed one always is: its
/// sender decides how much work it makes.
const LARGE_BYTES: usize = 64 * 1024;

/// Everything about a request that can count.
pub(crate) struct Asked {
    method: String,
    operation: String,
    target: Uri,
    headers: HeaderMap,
    body: Bytes,
    limits: Limits,
}

/// A request whose fingerprint under one selection is known already.
pub(crate) struct Known {
    asked: Arc<Asked>,
    known: Option<(Selection, Fingerprint)>,
}

impl Asked {
    pub(crate) fn new(
        parts: &Parts,
        target: &Uri,
        operation: &Operation,
        body: Bytes,
        bytes_max: usize,
    ) -> Self {
        Self {
            method: parts.method.as_str().to_owned(),
            operation: operation.to_string(),
            target: target.clone(),
            headers: parts.headers.clone(),
            body,
            limits: Limits { decoded_body_bytes_max: bytes_max },
        }
    }

    /// Takes the fingerprint under `selection`, off the threads that other requests wait for where that may take long.
    pub(crate) async fn read(self, selection: &Selection) -> Result<Known, Error> {
        let asked = Arc::new(self);
        let is_long = asked.body.len() >= LARGE_BYTES || asked.headers.contains_key(CONTENT_ENCODING);
        if !is_long {
            return Ok(Known { asked, known: None });
        }
        let (reader, chosen) = (Arc::clone(&asked), selection.clone());
        let read = tokio::task::spawn_blocking(move || reader.fingerprint(&chosen)).await;
        let known = match read {
            Ok(read) => Some((selection.clone(), read?)),
            Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            // The runtime is going down; the engine will ask once more, or not at all.
            Err(_) => None,
        };
        Ok(Known { asked, known })
    }

    fn lines(&self, name: &HeaderName) -> Vec<&[u8]> {
        self.headers.get_all(name).iter().map(http::HeaderValue::as_bytes).collect()
    }
}

impl Payload for Asked {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let request = Request {
            query: self.target.query().map(str::as_bytes),
            content_type: &self.lines(&CONTENT_TYPE),
            content_encoding: &self.lines(&CONTENT_ENCODING),
            headers: &headers,
            ..Request::new(&self.method, &self.operation, self.target.path(), &self.body)
        };
        request.fingerprint(selection, &self.limits)
    }
}

impl Payload for Known {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        match &self.known {
            Some((known, fingerprint)) if known == selection => Ok(*fingerprint),
            // A record that was made under other terms. Rare enough to be read right here.
            _ => self.asked.fingerprint(selection),
        }
    }
}
