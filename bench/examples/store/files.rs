//! The measured files: a fresh copy of a filled file for each run.

use crate::filled::{filled, target};
use std::error::Error;
use std::path::PathBuf;
use tokio::runtime::Runtime;

/// A directory that is removed when this is dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> std::io::Result<Self> {
        let directory = target().join(format!("tmp/store-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        Ok(Self(directory))
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.0.join("bare.log")
    }

    /// A separate file with this many finished commands.
    pub(crate) fn file(&self, runtime: &Runtime, records: u64) -> Result<PathBuf, Box<dyn Error>> {
        let path = self.0.join(format!("{records}.db"));
        if records > 0 {
            std::fs::copy(filled(runtime, records)?, &path)?;
            // Otherwise the first checkpoint would wait until the disk has the whole copy.
            std::fs::OpenOptions::new().write(true).open(&path)?.sync_all()?;
        }
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
