//! Files that a person names in a URL, in a configuration or on a command line, read up to a limit.
//!
//! A path can lead to something without an end, such as `/dev/zero`, or to a pipe that nobody writes to.

use semel_text::size;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// How much is read of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The most bytes.
    pub bytes_max: usize,
    /// What the file contains, for the error: "a token".
    pub of: &'static str,
}

/// The limit for files with certificates and keys.
pub const CERTIFICATES: Limit = Limit { bytes_max: 4 << 20, of: "certificates and keys" };

/// The whole file. A longer one, a directory and a named pipe are errors, which do not repeat the file's name. It can be
/// read again.
pub fn read(path: &Path, limit: Limit) -> io::Result<Vec<u8>> {
    read_if(path, limit, |found| !is_pipe(found))
}

/// The same, but it may also be a pipe that this process has open, such as one that a shell has made for `<(…)`: that can
/// be read only once.
pub fn read_once(path: &Path, limit: Limit) -> io::Result<Vec<u8>> {
    // Opening any other pipe waits for somebody who writes to it.
    read_if(path, limit, |found| !is_pipe(found) || is_open_already(path))
}

fn read_if(path: &Path, limit: Limit, is_fit: impl FnOnce(&fs::Metadata) -> bool) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory; name a file"));
    }
    if !is_fit(&found) {
        return Err(io::Error::other("it is a named pipe; name a file"));
    }
    read_from(File::open(path)?, limit)
}

/// All of `source`, or an error if it is longer.
pub fn read_from(source: impl Read, limit: Limit) -> io::Result<Vec<u8>> {
    let Limit { bytes_max, of } = limit;
    let mut bytes = Vec::new();
    source.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        let why = format!("it is larger than {}, the limit for {of}", size::text(bytes_max));
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
fn is_open_already(path: &Path) -> bool {
    ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|folder| path.starts_with(folder))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_within_the_limit_is_read() {
        let folder = semel_test_support::ScratchDir::new("named-file");
        let file = folder.write("file", "12345");
        let limit = |bytes_max| Limit { bytes_max, of: "a token" };
        assert_eq!(read(&file, limit(5)).expect("it fits"), b"12345");
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
        for (path, reason) in [
            (&*file, "it is larger than 4B, the limit for a token"),
            (&*pipe, "it is a named pipe; name a file"),
            (folder.path(), "it is a directory; name a file"),
        ] {
            assert_eq!(read(path, limit(4)).expect_err("refused").to_string(), reason);
            assert_eq!(read_once(path, limit(4)).expect_err("refused").to_string(), reason);
        }
    }
}
