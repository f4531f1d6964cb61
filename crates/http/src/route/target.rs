//! The target of a request, in normal form.
//!
//! Its method and path in normal form, and its query. The request itself is passed on unchanged.

use super::method::folded;
use http::{Method, Uri};
use semel::core::scope::normal_path;
use std::borrow::Cow;

/// The target of a request. Its route, operation and fingerprint depend on this, and on nothing else in its request
/// line.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    method: Method,
    uri: Uri,
    /// The normal form of the path, if it differs.
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
