//! A directory for the files of one test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// An empty directory that no other test uses. Removed with everything in it when it is dropped.
#[derive(Debug)]
pub struct ScratchDir(PathBuf);

impl ScratchDir {
    /// A directory among the system's temporary files.
    pub fn new(name: &str) -> Self {
        Self::under(std::env::temp_dir(), &format!("semel-{name}"))
    }

    /// A directory in `parent`. Tests in a folder `tests` pass `env!("CARGO_TARGET_TMPDIR")`, which is on the same
    /// disk as the build, while temporary files of the system may be in memory.
    pub fn under(parent: impl AsRef<Path>, name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = parent.as_ref().join(format!("{name}-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, which need not exist.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file in it, and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::write(&path, content).expect("a file for the test");
        path
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_of_one_name_are_separate_and_deleted() {
        let (one, other) = (ScratchDir::new("scratch"), ScratchDir::new("scratch"));
        let (file, kept) = (one.write("file", "1"), other.write("file", "2"));
        drop(one);
        assert!(!file.exists());
        assert_eq!(std::fs::read(kept).expect("it is there"), b"2");
    }
}
