//! Secrets, which stand elsewhere.
//!
//! What lives here: from `env:NAME` or `file:PATH` to what stands there. What must never: a secret in the file itself, or a
//! letter of one in a message.

use super::table::{Span, Table};
use std::path::PathBuf;

impl Table<'_, '_> {
    /// The secret that `key` refers to, without the line's end behind it.
    pub(super) fn secret(&self, key: &'static str) -> Option<Vec<u8>> {
        let (text, span) = self.text(key)?;
        self.secret_at(key, text, &span)
    }

    /// The secret that `text` refers to, which stands at `span` under `key`.
    pub(super) fn secret_at(&self, key: &str, text: &str, span: &Span) -> Option<Vec<u8>> {
        let at = Some(span);
        let found = if let Some(name) = text.strip_prefix("env:") {
            let found = (self.page.environment)(name).filter(|value| !value.is_empty());
            if found.is_none() {
                let what = format!("the environment variable {name}, which holds `{key}`, is not set");
                self.page.mistake(at, what, format!("set {name} for the process, or write file:PATH"));
            }
            found.map(std::ffi::OsString::into_encoded_bytes)
        } else if let Some(path) = text.strip_prefix("file:") {
            let read = std::fs::read(path).map_err(|error| {
                let what = format!("{path}, which holds `{key}`, cannot be read: {error}");
                self.page.mistake(at, what, "put the file there, readable for this process");
            });
            read.ok()
        } else {
            // What stands there may be the secret itself.
            let what = format!("`{key}` does not say where the secret is");
            self.page.mistake(
                at,
                what,
                "write env:NAME or file:PATH; a secret does not belong into this file",
            );
            None
        };
        let mut found = found?;
        if found.last() == Some(&b'\n') {
            found.pop();
        }
        if found.last() == Some(&b'\r') {
            found.pop();
        }
        Some(found)
    }

    /// What the file holds that `key` names, and where it is.
    pub(super) fn file(&self, key: &'static str) -> Option<(PathBuf, Vec<u8>)> {
        let (path, span) = self.text(key)?;
        let read = std::fs::read(path).map_err(|error| {
            let what = format!("{path}, which `{key}` names, cannot be read: {error}");
            self.page.mistake(Some(&span), what, "put the file there, readable for this process");
        });
        Some((path.into(), read.ok()?))
    }
}
