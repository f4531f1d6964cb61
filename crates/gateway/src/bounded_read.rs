//! The files that the gateway reads, each kind up to its own limit.

use semel_admin::client::RESPONSE_BYTES_MAX;
use semel_net::named_file::{self, CERTIFICATES, Limit};
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// What a file contains, which decides how much of it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A configuration file.
    Config,
    /// A token for the admin address.
    Token,
    /// A secret that the configuration refers to.
    Secret,
    /// Certificates and keys.
    Certificates,
    /// The system's list of users.
    Users,
    /// The body of a request, as long as fingerprints are calculated of.
    RequestBody,
    /// A response to store, or its body: as long as documents of the admin address are read.
    Response,
}

impl FileKind {
    /// How much is read of it.
    pub(crate) const fn limit(self) -> Limit {
        let (bytes_max, of) = match self {
            Self::Config => (1 << 20, "a configuration file"),
            Self::Token => (4 << 10, "a token"),
            Self::Secret => (64 << 10, "a secret"),
            Self::Certificates => return CERTIFICATES,
            Self::Users => (4 << 20, "a list of users"),
            Self::RequestBody => (10 << 20, "a request's body"),
            Self::Response => (RESPONSE_BYTES_MAX, "a response"),
        };
        Limit { bytes_max, of }
    }
}

/// A file that was not read, and why.
#[derive(Debug, Error)]
#[error("{} cannot be read: {source}", shown(file))]
pub(crate) struct ReadError {
    file: PathBuf,
    pub(crate) source: io::Error,
}

fn shown(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

/// The whole file.
pub(crate) fn read(file: &Path, kind: FileKind) -> Result<Vec<u8>, ReadError> {
    named_file::read_once(file, kind.limit()).map_err(|source| ReadError { file: file.to_owned(), source })
}

/// The same from standard input if `file` is `-`.
pub(crate) fn read_or_stdin(file: &Path, kind: FileKind) -> Result<Vec<u8>, ReadError> {
    if file != Path::new("-") {
        return read(file, kind);
    }
    named_file::read_from(io::stdin().lock(), kind.limit())
        .map_err(|source| ReadError { file: file.to_owned(), source })
}

/// The file as text.
pub(crate) fn read_text(file: &Path, kind: FileKind) -> Result<String, ReadError> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    let text = String::from_utf8(read(file, kind)?).map_err(not_text);
    text.map_err(|source| ReadError { file: file.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = ScratchDir::new("bounded-read");
        let file = folder.write("token", vec![b'a'; 4 << 10]);
        assert_eq!(read(&file, FileKind::Token).expect("it fits").len(), 4 << 10);
        let file = folder.write("token", vec![b'a'; (4 << 10) + 1]);
        let refused = read(&file, FileKind::Token).expect_err("it is too large").source.to_string();
        assert_eq!(refused, "it is larger than 4KiB, the limit for a token");
    }

    #[test]
    fn a_body_may_be_as_long_as_fingerprints_are_calculated_of() {
        let limits = semel::core::fingerprint::Limits::default();
        assert_eq!(FileKind::RequestBody.limit().bytes_max, limits.decoded_body_bytes_max);
    }
}
