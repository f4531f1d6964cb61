//! Files that a store's URL names, read up to a limit.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// The whole file. A longer one, a directory and a named pipe are errors: opening a pipe waits for a writer.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let found = fs::metadata(path)?;
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type()) {
        return Err(io::Error::other("it is a named pipe; name a file"));
    }
    if found.is_dir() {
        return Err(io::Error::other("it is a directory; name a file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it is longer than {bytes_max} bytes")));
    }
    Ok(bytes)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_within_the_limit_is_read() {
        let folder = semel_test_support::ScratchDir::new("named-file");
        let file = folder.write("file", "12345");
        assert_eq!(read(&file, 5).expect("it fits"), b"12345");
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
        for (path, reason) in
            [(&*file, "longer than 4"), (&*pipe, "a named pipe"), (folder.path(), "a directory")]
        {
            let refusal = read(path, 4).expect_err("refused").to_string();
            assert!(refusal.contains(reason), "{refusal}");
        }
    }
}
