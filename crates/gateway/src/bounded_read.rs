//! Files that a person names on the command line or in the configuration, read up to a limit.
//!
//! A path can lead to something without an end, such as `/dev/zero`, or to a pipe that nobody writes to.

use semel_text::size;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

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
    /// The most bytes that are read.
    pub(crate) const fn bytes_max(self) -> usize {
        match self {
            Self::Config => 1 << 20,
            Self::Token => 4 << 10,
            Self::Secret => 64 << 10,
            Self::Certificates | Self::Users => 4 << 20,
            Self::RequestBody => 10 << 20,
            Self::Response => 64 << 20,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Config => "a configuration file",
            Self::Token => "a token",
            Self::Secret => "a secret",
            Self::Certificates => "certificates and keys",
            Self::Users => "a list of users",
            Self::RequestBody => "a request's body",
            Self::Response => "a response",
        }
    }
}

/// The whole file, or an error that says why it was not read: [`unreadable`] puts the file's name before it.
pub(crate) fn read(file: &Path, kind: FileKind) -> io::Result<Vec<u8>> {
    let found = fs::metadata(file)?;
    if found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; name a file"));
    }
    // Opening a named pipe waits for somebody who writes to it. Those that a shell makes for `<(…)` have a writer.
    if is_pipe(&found) && !is_open_already(file) {
        return Err(io::Error::other("it is a named pipe; name a file"));
    }
    bounded(File::open(file)?, kind)
}

/// The same from standard input if `file` is `-`.
pub(crate) fn read_or_stdin(file: &Path, kind: FileKind) -> io::Result<Vec<u8>> {
    if file == Path::new("-") { bounded(io::stdin().lock(), kind) } else { read(file, kind) }
}

/// The message about a file, or standard input, that was not read.
pub(crate) fn unreadable(file: &Path, error: &io::Error) -> String {
    if file == Path::new("-") {
        return format!("standard input cannot be read: {error}");
    }
    format!("{} cannot be read: {error}", file.display())
}

/// The file as text.
pub(crate) fn read_text(file: &Path, kind: FileKind) -> io::Result<String> {
    let not_text = |_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text");
    String::from_utf8(read(file, kind)?).map_err(not_text)
}

fn bounded(source: impl Read, kind: FileKind) -> io::Result<Vec<u8>> {
    let bytes_max = kind.bytes_max();
    let mut bytes = Vec::new();
    source.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let why = format!("it is larger than {}, the limit for {}", size::text(bytes_max), kind.name());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

#[cfg(unix)]
fn is_pipe(found: &fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    found.file_type().is_fifo()
}

#[cfg(not(unix))]
fn is_pipe(_: &fs::Metadata) -> bool {
    false
}

/// Whether the path names what this process has open: opening it does not wait.
fn is_open_already(file: &Path) -> bool {
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|folder| file.starts_with(folder))
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
        let refused = read(&file, FileKind::Token).expect_err("it is too large").to_string();
        assert_eq!(refused, "it is larger than 4KiB, the limit for a token");
    }

    #[test]
    fn a_body_may_be_as_long_as_fingerprints_are_calculated_of() {
        let limits = semel::core::fingerprint::Limits::default();
        assert_eq!(FileKind::RequestBody.bytes_max(), limits.decoded_body_bytes_max);
    }
}
