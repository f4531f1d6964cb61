//! A small disk in memory, which can be filled. To mount it needs root.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const SIZE: &str = "size=24m";

/// Unmounted when it is dropped.
pub(crate) struct SmallDisk(PathBuf);

impl SmallDisk {
    pub(crate) fn mount(path: PathBuf) -> Self {
        std::fs::create_dir(&path).expect("a new directory");
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", SIZE, "tmpfs"]).arg(&path);
        let is_mounted = command.status().is_ok_and(|status| status.success());
        assert!(is_mounted, "this outage mounts a small file system, which needs root");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    pub(crate) fn fill(&self) {
        let mut filler = File::create(self.filler()).expect("a file");
        // To the last block that is free.
        for size in [1 << 16, 1 << 12, 1] {
            let block = vec![0; size];
            while filler.write_all(&block).is_ok() {}
        }
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.filler()).expect("it was filled");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a gateway may still be ending.
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}
