//! Where a client stores its key before it sends anything. Otherwise, a client that crashed in between would come back
//! with another key.

use semel::{Random, SystemRandom};
use std::path::PathBuf;
use std::{fs, io};

/// A file with one key in it, removed when this is dropped.
pub(super) struct Notebook(PathBuf);

impl Notebook {
    /// Stores `key`.
    pub(super) fn with(key: &str) -> io::Result<Self> {
        let notebook = Self(std::env::temp_dir().join(format!("semel-demo-{:032x}", SystemRandom.bits())));
        fs::write(&notebook.0, key)?;
        Ok(notebook)
    }

    /// The stored key.
    pub(super) fn read(&self) -> io::Result<String> {
        fs::read_to_string(&self.0)
    }
}

impl Drop for Notebook {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_and_its_file_is_removed() {
        let notebook = Notebook::with("a-key").expect("a file");
        assert_eq!(notebook.read().expect("it is there"), "a-key");
        let path = notebook.0.clone();
        drop(notebook);
        assert!(!path.exists());
    }
}
