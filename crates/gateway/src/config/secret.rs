//! Secrets, read from `env:NAME` or `file:PATH`. No part of a secret is in the file or in a message.

use super::table::{Span, Table};
use crate::bounded_read::{self, FileKind, ReadError};
use semel_text::size;
use std::io;
use std::path::{Path, PathBuf};

impl Table<'_, '_> {
    /// The secret that `key` refers to, without a trailing newline.
    pub(super) fn secret(&self, key: &'static str) -> Option<Vec<u8>> {
        let (text, span) = self.text(key)?;
        self.secret_at(key, text, &span)
    }

    /// The secret that `text` refers to, which is the value of `key` at `span`.
    pub(super) fn secret_at(&self, key: &str, text: &str, span: &Span) -> Option<Vec<u8>> {
        let at = Some(span);
        let found = if let Some(name) = text.strip_prefix("env:") {
            let found = (self.document.environment)(name).filter(|value| !value.is_empty());
            if found.is_none() {
                let problem = format!("the environment variable {name}, named by `{key}`, is not set");
                self.document.mistake(at, problem, format!("set {name} for the process, or write file:PATH"));
            }
            found.map(std::ffi::OsString::into_encoded_bytes)
        } else if let Some(path) = text.strip_prefix("file:") {
            let read = bounded_read::read(Path::new(path), FileKind::Secret).map_err(
                |ReadError { source, .. }| {
                    let problem = format!("{path}, named by `{key}`, cannot be read: {source}");
                    self.document.mistake(at, problem, fix(&source, FileKind::Secret));
                },
            );
            read.ok()
        } else {
            // The value may be the secret itself.
            let problem = format!("`{key}` must not contain the secret itself");
            self.document.mistake(at, problem, "write env:NAME or file:PATH");
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

    /// The content and the path of the file that `key` names.
    pub(super) fn file(&self, key: &'static str) -> Option<(PathBuf, Vec<u8>)> {
        let (path, span) = self.text(key)?;
        let read = bounded_read::read(Path::new(path), FileKind::Certificates).map_err(
            |ReadError { source, .. }| {
                let problem = format!("{path}, named by `{key}`, cannot be read: {source}");
                self.document.mistake(Some(&span), problem, fix(&source, FileKind::Certificates));
            },
        );
        Some((path.into(), read.ok()?))
    }
}

/// What to do about a file that was not read.
fn fix(error: &io::Error, kind: FileKind) -> String {
    if error.kind() == io::ErrorKind::FileTooLarge {
        return format!("name a file of at most {}", size::text(kind.limit().bytes_max));
    }
    "create the file, readable for this process".to_owned()
}
