//! What a request asks for, in the form in which requests are compared.
//!
//! Contents: its method and path, whatever their spelling, and its query. Never here: the request that is handed on;
//! that one is as the client wrote it.

use crate::method::folded;
use http::{Method, Uri};
use semel::core::scope::normal_path;
use std::borrow::Cow;

/// What a request asks for. Its rule, its operation and its fingerprint all follow from this, and from nothing else
/// of its request line.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    method: Method,
    uri: Uri,
    /// The path, where the client spelt it otherwise.
    normal: Option<String>,
}

impl Target {
    pub(crate) fn new(method: &Method, uri: Uri) -> Self {
        let normal = match normal_path(uri.path()) {
            Cow::Borrowed(_) => None,
            Cow::Owned(normal) => Some(normal),
        };
        Self { method: folded(method), uri, normal }
    }

    /// The method, in upper case.
    pub(crate) fn method(&self) -> &Method {
        &self.method
    }

    /// The path, in its normal form.
    pub(crate) fn path(&self) -> &str {
        self.normal.as_deref().unwrap_or(self.uri.path())
    }

    /// The query, exactly as it was sent.
    pub(crate) fn query(&self) -> Option<&str> {
        self.uri.query()
    }
}
